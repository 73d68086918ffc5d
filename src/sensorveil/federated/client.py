"""The client: its own data, what it samples from it, and the update that leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.func import vmap

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.meta_learning import AdamState, MetaBatch, adam_step, meta_gradient
from sensorveil.methods.blinder import Batch, Blinder, BlinderLoss, BlinderNetwork
from sensorveil.train import derived_seed
from sensorveil.vae import one_hot

_CLIENTS_AT_ONCE = 16  # each needs some copies of all weights
_NOISE_SEED = 1_000_000  # above every pass of an epoch: orders and noise never share a seed


def people_of(windows: Windows) -> dict[int, Windows]:
    """Each person's windows, by the person's code: one person is one client."""
    return {
        int(person): windows.select(np.flatnonzero(windows.subject == person))
        for person in np.unique(windows.subject)
    }


def known_classes(run: Blinder, windows: Windows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows of one person whose classes are all known from a run's training.

    Classes are matched by name: one person's data may list few of them.

    Returns
    -------
    positions, kept, hidden
        Which windows, their kept class (n,), their hidden classes (n, attributes).
    """
    run._check_alike(windows)
    kept = _codes_of(run, windows, run.policy_.keep, run.kept_classes_)
    of_hidden = zip(run.policy_.hide, run.hidden_classes_, strict=True)
    hidden = np.stack([_codes_of(run, windows, (name,), own) for name, own in of_hidden], axis=1)
    known = np.flatnonzero((kept != UNKNOWN) & (hidden != UNKNOWN).all(1))
    return known, kept[known], hidden[known]


def _codes_of(
    run: Blinder, windows: Windows, attributes: Sequence[str], combinations: np.ndarray
) -> np.ndarray:
    """The number of each window's combination of classes; UNKNOWN where it is none of them."""
    columns = []
    for name in attributes:
        known = run.classes_[name]
        place = [known.index(c) if c in known else UNKNOWN for c in windows.classes[name]]
        columns.append(np.array([*place, UNKNOWN])[windows.codes(name)])
    matches = (np.stack(columns, axis=1)[:, None] == combinations).all(2)
    return np.where(matches.any(1), matches.argmax(1), UNKNOWN)


@dataclass(frozen=True, eq=False)
class ClientDataset:
    """One person's windows (n, channels, length) in standard units, and their classes."""

    windows: torch.Tensor
    kept: torch.Tensor
    hidden: torch.Tensor

    def __len__(self) -> int:
        return len(self.windows)

    @classmethod
    def of(
        cls, start: Blinder, windows: Windows, config: FederationConfig, client: int
    ) -> ClientDataset:
        """A client's windows of known classes, resampled as the configuration says."""
        positions, kept, hidden = known_classes(start, windows)
        own = windows.select(positions).standardized(start.scaling_)
        signal = torch.from_numpy(own.signal).flatten(1, -2).numpy()
        data, seed = (signal, kept, hidden), derived_seed(config.seed, client)
        if config.class_ratio and len(signal):
            data = unbalance(data, config.class_ratio, config.balance, seed)
        elif config.balance and len(signal):
            data = balance(data, config.balance, seed)
        if len(data[0]) < config.batch_size:
            raise Refusal(
                f"client {client} has {len(data[0])} windows; a batch takes {config.batch_size}"
            )
        return cls(*(torch.from_numpy(part).to(start.device) for part in data))

    @classmethod
    def concatenate(cls, several: Sequence[ClientDataset]) -> ClientDataset:
        """The data of several clients, one after the other."""
        parts = zip(*((one.windows, one.kept, one.hidden) for one in several), strict=True)
        return cls(*(torch.cat(part) for part in parts))


# Section 6.1: resampling of the kept classes.

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Windows (n, channels, length), their kept class (n,), their hidden classes (n, attributes)."""

_NEIGHBOURS = 5  # of SMOTE


def balance(data: Data, target: int, seed: int) -> Data:
    """As many windows of each kept class, unless the largest has less than twice the smallest's."""
    classes, sizes = np.unique(data[1], return_counts=True)
    if sizes.max() < 2 * sizes.min():
        return data
    return _resample(data, dict.fromkeys(classes.tolist(), target), seed)


def unbalance(data: Data, ratio: float, target: int, seed: int) -> Data:
    """Uneven classes (section 7.7): half of them, at random, with `target` windows, others fewer."""
    classes = np.unique(data[1])
    many = np.random.default_rng(seed).choice(classes, max(1, len(classes) // 2), replace=False)
    wanted = {int(c): target if c in many else max(1, round(target / ratio)) for c in classes}
    return _resample(data, wanted, seed)


def _resample(data: Data, wanted: Mapping[int, int], seed: int) -> Data:
    """As many windows of each kept class as wanted: SMOTE for few, at random for many.

    Where hidden classes vary within a kept class, each gets an equal part, so that no window is
    interpolated between two hidden classes. A single window has no neighbours and stays.
    """
    signal, kept, hidden = data
    combinations, codes = np.unique(np.column_stack([kept, hidden]), axis=0, return_inverse=True)
    parts = np.bincount(combinations[:, 0])
    most = {n: wanted[c] // parts[c] for n, c in enumerate(combinations[:, 0].tolist())}
    rows, codes = _oversample(signal.reshape(len(signal), -1), codes.reshape(-1), most, seed)
    rng = np.random.default_rng(seed)
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(codes == n))[:size] for n, size in most.items()]
    )
    rows, codes = rows[chosen], codes[chosen]
    return rows.reshape(-1, *signal.shape[1:]), combinations[codes, 0], combinations[codes, 1:]


def _oversample(
    rows: np.ndarray, codes: np.ndarray, wanted: Mapping[int, int], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """SMOTE for each class that has too few, among its own windows only."""
    try:
        from imblearn.over_sampling import SMOTE
    except ImportError:
        raise Refusal(
            "balancing needs imbalanced-learn: pip install 'sensorveil[federated]', or balance=0"
        ) from None
    counts = np.bincount(codes)
    for code, most in wanted.items():
        if 1 < counts[code] < most:
            neighbours = min(_NEIGHBOURS, int(counts[code]) - 1)
            smote = SMOTE(sampling_strategy={code: most}, k_neighbors=neighbours, random_state=seed)
            rows, codes = smote.fit_resample(rows, codes)
    return rows.astype(np.float32), codes


# Algorithm 1, line 13: support and query sets.


class Draw(NamedTuple):
    """The random numbers of one local step, all drawn on the CPU.

    `rows` (batch,) are positions of windows, the support first. `shifts` (support, attributes) say
    how far each shadow sample's hidden class is from the window's own. `noise` is for the codes,
    (4 * support + query, latent_size). Several steps or clients have more axes in front.
    """

    rows: torch.Tensor
    shifts: torch.Tensor
    noise: torch.Tensor
    warm_up: torch.Tensor


def draw(
    count: int, network: BlinderNetwork, config: FederationConfig, client: int, number: int
) -> Draw:
    """A client's random numbers for round `number`, with its local steps in front.

    Over an epoch a client passes through its `count` windows in an order of its own, batch by
    batch. All follows from the seed, the client and the round's number: asked twice for a round, it
    draws the same.
    """
    own = derived_seed(config.seed, client)
    generator = torch.Generator().manual_seed(derived_seed(derived_seed(own, number), _NOISE_SEED))
    steps, support = config.local_steps, config.support_size
    shifts = [
        torch.randint(1, size, (steps, support), generator=generator) for size in network.num_hidden
    ]
    rows = torch.stack([_rows(count, config, own, number, step) for step in range(steps)])
    shape = (steps, 4 * support + config.query_size, network.latent_size)
    noise = torch.randn(shape, generator=generator)
    warm_up = torch.full((steps,), config.warm_up_at(number))
    return Draw(rows, torch.stack(shifts, dim=-1), noise, warm_up)


def _rows(count: int, config: FederationConfig, seed: int, number: int, step: int) -> torch.Tensor:
    """The windows of one batch, none twice: support and query sets have none in common."""
    epoch, place = divmod(number, config.rounds)
    turn, batch = divmod(place * config.local_steps + step, count // config.batch_size)
    order = _order(count, derived_seed(derived_seed(seed, epoch), turn))
    return order[batch * config.batch_size : (batch + 1) * config.batch_size]


@lru_cache(maxsize=256)
def _order(count: int, seed: int) -> torch.Tensor:
    """All rows in a random order, which serves many rounds."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def gather(
    data: ClientDataset, drawn: Draw, network: BlinderNetwork, config: FederationConfig
) -> MetaBatch:
    """Support and query sets as drawn, on the device of the data; axes in front stay there."""
    rows, shifts, noise, warm_up = (part.to(data.windows.device) for part in drawn)
    size = config.support_size
    support, query = rows.split([size, config.query_size], dim=-1)
    own, shadow, other = noise.split([size, 3 * size, config.query_size], dim=-2)
    own_hidden = data.hidden[support]
    shifted = [
        (own_hidden[..., n] + shifts[..., n]) % size for n, size in enumerate(network.num_hidden)
    ]

    def batch(rows: torch.Tensor, noise: torch.Tensor) -> Batch:
        kept = one_hot(data.kept[rows].unsqueeze(-1), (network.num_kept,))
        hidden = one_hot(data.hidden[rows], network.num_hidden)
        return Batch(data.windows[rows], kept, hidden, noise, warm_up)

    return MetaBatch(
        batch(support, own),
        one_hot(torch.stack(shifted, dim=-1), network.num_hidden),
        shadow.unflatten(-2, (3, size)),
        batch(query, other),
    )


def select(batch: MetaBatch, index: Any) -> MetaBatch:
    """A part of stacked meta-batches, or with another axis in front (`index=None`)."""
    support, query = (
        Batch(*(part[index] for part in one))  # type: ignore[index]
        for one in (batch.support, batch.query)
    )
    return MetaBatch(support, batch.shadow_hidden[index], batch.shadow_noise[index], query)


# Algorithm 1, lines 21 to 24: the update.


def client_updates(
    loss: BlinderLoss,
    vector: torch.Tensor,
    batches: MetaBatch,
    config: FederationConfig,
    learning_rate: float | torch.Tensor,
) -> torch.Tensor:
    """What clients send, (clients, weights), for batches with axes (clients, local steps).

    With fedsgd it is the gradient at the server's weights; with fedavg what local steps of Adam
    changed in them. All clients go through one vectorised pass; a single client is a pass of one.
    """
    adaptation = config.adaptation.model_dump()

    def gradient(vector: torch.Tensor, batch: MetaBatch) -> torch.Tensor:
        return meta_gradient(loss, vector, batch, **adaptation)

    if config.algorithm == "fedsgd":
        first = select(batches, (slice(None), 0))
        sent: torch.Tensor = vmap(gradient, (None, 0), chunk_size=_CLIENTS_AT_ONCE)(vector, first)
        return sent.detach()
    own = vector.expand(len(batches.shadow_hidden), -1)
    state = AdamState.zeros(own)
    for step in range(config.local_steps):
        batch = select(batches, (slice(None), step))
        slope = vmap(gradient, chunk_size=_CLIENTS_AT_ONCE)(own, batch).detach()
        own, state = adam_step(own, slope, state, step + 1, learning_rate)
    return own - vector


def client_update(
    loss: BlinderLoss,
    vector: torch.Tensor,
    data: ClientDataset,
    config: FederationConfig,
    client: int,
    number: int,
) -> torch.Tensor:
    """What one client sends in round `number`, at the server's weights."""
    drawn = draw(len(data), loss.network, config, client, number)
    batches = select(gather(data, drawn, loss.network, config), None)
    return client_updates(loss, vector, batches, config, config.learning_rate_at(number))[0]
