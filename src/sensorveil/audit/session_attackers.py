"""Session attackers: they learn to predict an attribute from several windows of one group at once.

A group is a recording or a person. What single windows hardly show, many of them together may: how
much they differ within a recording, or how each differs from the one before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sensorveil.audit.features import RandomConvolutions, spectral_tensor
from sensorveil.classifiers import CNN, with_magnitudes
from sensorveil.data.windows import UNKNOWN, DeviceWindows, Scaling, Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.train import TrainConfig, derived_seed, seeded, train_network

SET, SEQUENCE = "set network", "sequence network"

LARGEST = 60
"""The most windows of a training set, and of a run of windows that is read in order."""

_TOKEN_DROPOUT, _BODY_DROPOUT = 0.2, 0.3
_WEIGHT_DECAY = 0.05

_ATTACKERS: dict[str, type[SessionAttacker]] = {}

A = TypeVar("A", bound="type[SessionAttacker]")


def register_session_attacker(name: str) -> Callable[[A], A]:
    """Class decorator that adds a session attacker to every audit.

    Parameters
    ----------
    name
        The name in results.
    """

    def register(cls: A) -> A:
        if name in _ATTACKERS and _ATTACKERS[name].__qualname__ != cls.__qualname__:
            raise Refusal(f"a session attacker is named '{name}' already")
        cls.name = name
        _ATTACKERS[name] = cls
        return cls

    return register


def list_session_attackers() -> tuple[str, ...]:
    """The names of all registered session attackers.

    Examples
    --------
    >>> list_session_attackers()[:2]
    ('set network', 'sequence network')
    """
    return tuple(_ATTACKERS)


def session_attacker_class(name: str) -> type[SessionAttacker]:
    """The registered session attacker of a name.

    Examples
    --------
    >>> session_attacker_class("set network").name
    'set network'
    """
    if name not in _ATTACKERS:
        raise refuse_unknown("session attacker", name, list(_ATTACKERS))
    return _ATTACKERS[name]


@dataclass(frozen=True)
class SessionBudget:
    """Size and training of session attackers; the defaults are for a GPU.

    Parameters
    ----------
    kernels
        Random convolutions of a window.
    components
        Principal components of a window's random convolutions and spectra that are kept.
    filters
        Width of the CNN that is trained along with the rest; 0 leaves the CNN out.
    width
        Numbers that stand for a window.
    sets
        Sets of windows in an epoch.
    epochs, batch_size, learning_rate
        As in `TrainConfig`, in sets.
    members
        Networks that differ in their seed; their probabilities are averaged.

    Examples
    --------
    >>> SessionBudget.quick().filters
    0
    """

    kernels: int = 500
    components: int = 256
    filters: int = 64
    width: int = 64
    sets: int = 6_400
    epochs: int = 8
    batch_size: int = 64
    learning_rate: float = 2e-3
    members: int = 2

    @classmethod
    def quick(cls) -> SessionBudget:
        """For two cores: seconds instead of minutes."""
        return cls(
            kernels=200,
            components=128,
            filters=0,
            width=48,
            sets=640,
            epochs=10,
            batch_size=64,
            learning_rate=4e-3,
            members=1,
        )


class SessionAttacker(ABC):
    """Predicts attributes of a person from several windows at once.

    Parameters
    ----------
    budget
        How large it may be and how long it may train.
    seed
        Of everything random.
    device
        Where it works.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""

    def __init__(
        self, budget: SessionBudget | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        self.budget = budget or SessionBudget()
        self.seed = seed
        self.device = device

    @abstractmethod
    def fit(
        self,
        train: Windows,
        groups: Sequence[np.ndarray],
        labels: Mapping[str, np.ndarray],
        num_classes: Mapping[str, int],
        kept: np.ndarray,
    ) -> SessionAttacker:
        """Learn all attributes from groups of training windows.

        Parameters
        ----------
        train
            The windows.
        groups
            For each kind of group (recording, person) the group of each window, -1 for none.
        labels
            For each attribute the class of each window, UNKNOWN where it is not known. A group
            whose windows have several classes of an attribute does not count for that attribute.
        num_classes
            For each attribute the number of its classes.
        kept
            The kept class of each window as one number.
        """

    @abstractmethod
    def predict_log_proba(self, windows: Windows, group: np.ndarray) -> dict[str, np.ndarray]:
        """For each attribute log-probabilities (groups, classes), for groups 0 to the largest."""


class NetworkSessionAttacker(SessionAttacker):
    """A network with a shared encoder of windows and a head for each attribute."""

    ordered: ClassVar[bool] = False
    """Whether the windows of a set follow each other, and the network sees their order."""

    def fit(
        self,
        train: Windows,
        groups: Sequence[np.ndarray],
        labels: Mapping[str, np.ndarray],
        num_classes: Mapping[str, int],
        kept: np.ndarray,
    ) -> NetworkSessionAttacker:
        """Train the networks on random sets of the windows of a group."""
        self.classes_ = {name: num_classes[name] for name in labels}
        self.features_ = _WindowFeatures(self.budget, self.seed, self.device).fit(train)
        source = self.features_.source(train)
        order = np.lexsort([train.start, train.recording])
        sampler = _Sampler(groups, labels, kept, order, self.ordered, self.device)
        count, shape, size = self.budget.sets, self.features_.shape_, self.features_.basis_.shape[1]
        batch_size = min(self.budget.batch_size, count)
        config = TrainConfig(
            self.budget.epochs, batch_size, self.budget.learning_rate, weight_decay=_WEIGHT_DECAY
        )
        self.networks_ = []
        for member in range(self.budget.members):
            seed = derived_seed(self.seed, member)
            with seeded(seed):
                network = _SessionNetwork(
                    shape, size, self.budget, list(self.classes_.values()), self.ordered
                ).to(self.device)

            def loss(index: torch.Tensor, network: _SessionNetwork = network) -> torch.Tensor:
                places, mask, codes = sampler.draw(len(index))
                inputs = source(places.flatten())
                tokens = network.tokens(*inputs, mask)
                return _loss(network.heads(network.pooled(tokens, mask)), codes)

            train_network(self.name, network, loss, count, config, seed, self.device)
            self.networks_.append(network)
        return self

    @torch.no_grad()
    def predict_log_proba(self, windows: Windows, group: np.ndarray) -> dict[str, np.ndarray]:
        """The mean of the networks' probabilities; groups without windows get equal ones."""
        count = int(group.max(initial=-1)) + 1
        source = self.features_.source(windows)
        order = np.lexsort([windows.start, windows.recording, group])
        places = _runs(group[order])
        total: dict[str, torch.Tensor] = {}
        for network in self.networks_:
            sums = torch.zeros(count, 2 * network.width + 1, device=self.device)
            for rows in np.array_split(places, max(1, places.size // 8192)):
                mask = torch.from_numpy(rows >= 0).to(self.device)
                index = order[np.maximum(rows, 0)]
                inputs = source(torch.from_numpy(index).flatten().to(self.device))
                owner = torch.from_numpy(group[index[:, 0]]).to(self.device)
                tokens = network.tokens(*inputs, mask)
                sums.index_add_(0, owner, _sums(tokens, mask))
            outputs = network.heads(_moments(sums))
            for name, logits in zip(self.classes_, outputs, strict=True):
                total[name] = total.get(name, 0) + logits.float().softmax(1)
        return {name: (p / p.sum(1, keepdim=True)).log().cpu().numpy() for name, p in total.items()}


@register_session_attacker(SET)
class SetAttacker(NetworkSessionAttacker):
    """The mean and the deviation of what it computes of each window, over all windows of a set."""

    summary = "mean and spread over the windows of a session"


@register_session_attacker(SEQUENCE)
class SequenceAttacker(NetworkSessionAttacker):
    """Dilated convolutions over windows in order, and mean and deviation of what they give."""

    summary = "convolutions over the windows of a session in order"
    ordered = True


class _WindowFeatures:
    """Frozen features of windows, and the windows themselves where a CNN is trained along."""

    def __init__(self, budget: SessionBudget, seed: int, device: str) -> None:
        self.budget, self.seed, self.device = budget, seed, device

    def fit(self, train: Windows) -> _WindowFeatures:
        self.scaling_ = Scaling.of(train)
        own = train.standardized(self.scaling_)
        self.pairs_ = train.recorded.is_complex
        channels = own.shape[0] * 3 // 2 if self.pairs_ else own.shape[0]
        self.shape_ = (channels, *own.shape[1:])
        kernels = RandomConvolutions(self.budget.kernels, self.seed, self.device)
        self.kernels_ = kernels.fit(train)
        features = self._all(train)
        deviation, self.mean_ = torch.std_mean(features, 0, correction=0)
        self.deviation_ = deviation.masked_fill(deviation <= 1e-6, torch.inf)
        units = (features - self.mean_) / self.deviation_
        values, vectors = torch.linalg.eigh((units.T @ units / len(units)).double())
        scale = values.flip(0)[: self.budget.components].clamp_min(0).sqrt()
        kept = vectors.flip(1)[:, : self.budget.components]
        # Halfway between principal components as they are, and all of the same size.
        self.basis_ = (kept / ((scale * scale[0]).sqrt() + 1e-3)).float()
        self.known_ = train, units @ self.basis_, self._signals(train)
        return self

    def _signals(self, windows: Windows) -> DeviceWindows | None:
        """The windows on the device, for the CNN."""
        return windows.standardized(self.scaling_).on(self.device) if self.budget.filters else None

    def _all(self, windows: Windows) -> torch.Tensor:
        spectra = spectral_tensor(windows, self.device)
        return torch.cat([self.kernels_.transform_tensor(windows), spectra], dim=1)

    def source(
        self, windows: Windows
    ) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
        """Gives features and signals of windows at some positions, on the device."""
        if windows is not self.known_[0]:  # the same windows are asked for in many groupings
            table = (self._all(windows) - self.mean_) / self.deviation_ @ self.basis_
            self.known_ = windows, table, self._signals(windows)
        _, table, signals = self.known_
        if signals is None:
            return lambda index: (table[index], table[:0])

        def gather(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            signal = signals[index]
            return table[index], with_magnitudes(signal) if self.pairs_ else signal

        return gather


class _Sampler:
    """Draws random sets of windows of random groups; all sets have equally many places and a mask."""

    def __init__(
        self,
        groups: Sequence[np.ndarray],
        labels: Mapping[str, np.ndarray],
        kept: np.ndarray,
        order: np.ndarray,
        ordered: bool,
        device: str,
    ) -> None:
        self.ordered, self.device = ordered, device
        tables = [order[np.argsort(group[order], kind="stable")] for group in groups]
        members = [
            part
            for group, table in zip(groups, tables, strict=True)
            for part in np.split(table, np.flatnonzero(np.diff(group[table])) + 1)
            if len(part) and group[part[0]] >= 0
        ]
        kinds = np.repeat(
            np.arange(len(groups)), [len(np.unique(group[group >= 0])) for group in groups]
        )
        self.size = torch.tensor([len(part) for part in members], device=device)
        longest = int(self.size.max())
        self.most = min(LARGEST, longest)
        places = np.full((len(members), longest), -1)
        for row, part in zip(places, members, strict=True):
            row[: len(part)] = part
        self.places = torch.from_numpy(places).to(device)
        _, codes = np.unique(kept, return_inverse=True)
        self.kept = torch.from_numpy(np.where(places >= 0, codes[places], 0)).to(device)
        self.num_kept = int(codes.max()) + 1
        counts = functional.one_hot(self.kept, self.num_kept) * (self.places >= 0)[..., None]
        self.rarity = -counts.sum(1).clamp_min(1).log()  # (groups, kept classes)
        constant = [[_constant(codes[part]) for codes in labels.values()] for part in members]
        self.codes = torch.tensor(constant, device=device)
        weight = torch.from_numpy(1.0 / np.bincount(kinds)[kinds]).to(device)
        self.edges = weight.cumsum(0) / weight.sum()

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Positions of windows (count, most), which of them count, classes (count, attributes)."""

        def rand(*shape: int) -> torch.Tensor:
            return torch.rand(*shape, device=self.device)

        row = torch.searchsorted(self.edges, rand(count).double()).clamp_max(len(self.size) - 1)
        size = self.size[row]
        place = torch.arange(self.places.shape[1], device=self.device)
        # Each kept class gets a random weight, so that the composition of a set says little.
        weight = -(-rand(count, self.num_kept).clamp_min(1e-6).log()).log() + self.rarity[row]
        noise = -(-rand(count, len(place)).clamp(1e-9, 1 - 1e-6).log()).log()
        inside = place < size[:, None]
        key = (weight.gather(1, self.kept[row]) + noise).masked_fill(~inside, -torch.inf)
        number = (rand(count) * size.clamp_max(self.most)).long() + 1
        # A span of the group, from the windows asked for to all, around a random one of these.
        wide = torch.exp(rand(count) * torch.log(size / number)) if not self.ordered else 1.0
        span = torch.minimum((number * wide).long(), size)
        first = (key.argmax(1) - (rand(count) * span).long()).clamp_min(0)
        first = torch.minimum(first, size - span)
        near = (place >= first[:, None]) & (place < (first + span)[:, None])
        chosen = key.masked_fill(~near, -torch.inf).topk(self.most).indices
        mask = torch.arange(self.most, device=self.device) < number[:, None]
        chosen = chosen.masked_fill(~mask, len(place)).sort(1).values.clamp_max(len(place) - 1)
        return self.places[row].gather(1, chosen).clamp_min(0), mask, self.codes[row]


class _SessionNetwork(nn.Module):
    """Encodes windows, perhaps with their neighbours; pools mean and deviation; predicts."""

    def __init__(
        self,
        shape: tuple[int, ...],
        size: int,
        budget: SessionBudget,
        classes: Sequence[int],
        ordered: bool,
    ) -> None:
        super().__init__()
        self.width, self.ordered = budget.width, ordered
        self.cnn = CNN(shape, 1, budget.filters).features if budget.filters else None
        learnt = self.cnn(torch.zeros(2, *shape)).shape[1] if self.cnn is not None else 0
        self.frozen = nn.Sequential(nn.Dropout(_TOKEN_DROPOUT), nn.Linear(size, 2 * self.width))
        self.learnt = (
            nn.Sequential(nn.Dropout(_TOKEN_DROPOUT), nn.Linear(learnt, 2 * self.width))
            if learnt
            else None
        )
        self.encoder = nn.Sequential(
            nn.GELU(), nn.Dropout(_TOKEN_DROPOUT), nn.Linear(2 * self.width, self.width)
        )
        self.context = nn.ModuleList(
            nn.Conv1d(self.width, self.width, 3, padding=dilation, dilation=dilation)
            for dilation in ((1, 2, 4) if ordered else ())
        )
        self.body = nn.Sequential(
            nn.BatchNorm1d(2 * self.width),
            nn.Dropout(_BODY_DROPOUT),
            nn.Linear(2 * self.width, self.width),
            nn.GELU(),
            nn.Dropout(_BODY_DROPOUT),
        )
        self.outputs = nn.ModuleList(nn.Linear(self.width, count) for count in classes)

    def tokens(
        self, features: torch.Tensor, signals: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """What each window of each set stands for, (sets, windows, width)."""
        hidden = self.frozen(features)
        if self.cnn is not None and self.learnt is not None:
            hidden = hidden + self.learnt(self.cnn(signals))
        tokens = self.encoder(hidden).view(*mask.shape, self.width)
        for layer in self.context:
            shown = (tokens * mask[..., None]).transpose(1, 2)
            tokens = tokens + functional.gelu(layer(shown)).transpose(1, 2)
        return cast(torch.Tensor, tokens)

    def pooled(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Mean and deviation over the windows of each set."""
        return _moments(_sums(tokens, mask))

    def heads(self, pooled: torch.Tensor) -> list[torch.Tensor]:
        """Logits of each attribute."""
        body = self.body(pooled)
        return [head(body) for head in self.outputs]


def _sums(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sums and sums of squares over the windows of each set, and their number."""
    shown = tokens.float() * mask[..., None]
    return torch.cat([shown.sum(1), shown.square().sum(1), mask.sum(1, keepdim=True)], 1)


def _moments(sums: torch.Tensor) -> torch.Tensor:
    """Mean and deviation from what `_sums` gives."""
    width = sums.shape[1] // 2
    count = sums[:, -1:].clamp_min(1)
    mean = sums[:, :width] / count
    variance = sums[:, width:-1] / count - mean.square()
    unbiased = variance.clamp_min(0) * count / (count - 1).clamp_min(1)
    return torch.cat([mean, (unbiased + 1e-4).sqrt()], 1)


def _loss(outputs: Sequence[torch.Tensor], codes: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all known classes."""
    total, known = torch.zeros((), device=codes.device), (codes != UNKNOWN).sum()
    for number, logits in enumerate(outputs):
        each = functional.cross_entropy(
            logits.float(),
            codes[:, number],
            ignore_index=UNKNOWN,
            reduction="none",
            label_smoothing=0.05,
        )
        total = total + each.sum()
    return total / known.clamp_min(1)


def _constant(codes: np.ndarray) -> int:
    """The class of a group, UNKNOWN where its windows have none or several."""
    found = np.unique(codes[codes != UNKNOWN])
    return int(found[0]) if len(found) == 1 else UNKNOWN


def _runs(group: np.ndarray) -> np.ndarray:
    """Positions of sorted windows in rows of at most `LARGEST` of one group, -1 where none is."""
    rows, longest = [], int(np.bincount(group[group >= 0], minlength=1).max())
    width = max(1, min(LARGEST, longest))
    for part in np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1):
        if len(part) and group[part[0]] >= 0:
            room = -len(part) % width
            rows.append(np.pad(part, (0, room), constant_values=-1).reshape(-1, width))
    return np.concatenate(rows) if rows else np.zeros((0, width), int)
