"""What the diffusion methods share: windows from noise, led towards some classes, away from others.

A method says what is made from noise (windows themselves, or latents), what the generator is told
of a window, and who reads hidden attributes. How samples are led, with a strength for each window,
and what is avoided, stands here once.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import nn

from sensorveil.cuda_graphs import Inputs, capture
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.diffusion.guidance import (
    Gradient,
    Reader,
    Weight,
    avoiding,
    best_of,
    bounded,
    classifier_free,
    within,
)
from sensorveil.diffusion.mlp import ResidualDenoiser
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import NoiseSchedule
from sensorveil.diffusion.training import FromVelocity, autocast_bf16, train_denoiser
from sensorveil.errors import Refusal
from sensorveil.files import part_of
from sensorveil.measures.inference import Ensemble, seen_shape
from sensorveil.measures.timing import median_seconds
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.methods.classes import READER, joint_classes
from sensorveil.methods.guided_settings import AVOIDED, GUIDING, LITTLE, PANEL, GuidedSettings
from sensorveil.methods.judging import Judge, by_features, by_panel, worth
from sensorveil.methods.pieces import PIECE, as_real, piece_on, pieces
from sensorveil.progress import track
from sensorveil.train import Gather, derived_seed, seeded


class GuidedDiffusion(Obfuscator):
    """A method that makes windows from noise by a guided diffusion model.

    `_fit` fills `nets_`, where "generator" is the denoiser, and calls `_learn_limits` and
    `_learn_centres`. What is avoided needs a reader for each hidden attribute (`_likely`).
    """

    capabilities = Capabilities(
        strengths={"keep": "how strongly samples are led towards the kept attributes"},
        strength_per_hidden=True,
        new_hide_without_generator=True,
    )
    settings: GuidedSettings
    guiding: ClassVar[tuple[str, ...]] = GUIDING
    """Settings that can be other ones without training anything anew."""
    of_readers: ClassVar[tuple[str, ...]] = ()
    """Settings that only the readers of hidden attributes are trained by."""

    def needs_wearer(self) -> bool:
        """Whether the wearer's true class is what is avoided."""
        return self.settings.avoids == "wearer"

    def with_settings(self, windows: Windows | None = None, **settings: Any) -> Self:
        """Another one with other settings and the same generator.

        All settings of guidance and sampling can be other ones. Those of hidden attributes' readers
        can too, where `windows` are those it was trained on: the readers are trained anew.
        """
        self._check_fitted()
        unknown = set(settings) - {*self.guiding, *self.of_readers}
        if unknown:
            raise Refusal(f"setting '{min(unknown)}' cannot be another one without training anew")
        other = copy.copy(self)
        other.settings = self.settings.with_changes(settings)
        if set(settings) & set(self.of_readers):
            if windows is None:
                raise Refusal(f"{self.name} needs its training windows to train readers anew")
            self._check_alike(windows)
            other.metrics_ = dict(self.metrics_)
            for name in self.policy_.hide:
                other._add_hidden(windows.scaled(self.scaling_), name)
        return other

    def variants(self) -> dict[str, Self]:
        """Each other way to avoid, on the same weights."""
        others = (way for way in AVOIDED if way != self.settings.avoids)
        return {f"{self.name}, avoids={way}": self.with_settings(avoids=way) for way in others}

    # What a method says.

    @abstractmethod
    def _space(self) -> tuple[int, ...]:
        """The shape of what is made from noise."""

    @abstractmethod
    def _encoded(self, signal: torch.Tensor) -> torch.Tensor:
        """What the kept attributes' networks make of signals, of length 1: (n, features)."""

    @abstractmethod
    def _likely(self, name: str, clean: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of a hidden attribute in what is made: (n, classes)."""

    @abstractmethod
    def _read(self, windows: Windows, name: str) -> torch.Tensor:
        """Log-probabilities of a hidden attribute in the wearer's own windows: (n, classes)."""

    @abstractmethod
    def _blank_net(self, which: str) -> nn.Module:
        """A network of `nets_` before it has learnt anything."""

    def _finished(self, made: torch.Tensor) -> torch.Tensor:
        """Signals (real) out of what was made from noise."""
        return made

    def _leading(self, piece: Inputs) -> torch.Tensor:
        """What the generator is told of each window of a piece, all of it."""
        return piece["told"]

    def _beside(self, piece: Inputs) -> torch.Tensor | None:
        """What of it must not be amplified where there is little noise, else 0; None: nothing."""
        return None

    # Learning what all of them need.

    def _learn_limits(self, gather: Gather, count: int) -> None:
        """The range of what is made, for each of its channels: samples are held within it."""
        lows, highs = [], []
        for rows in pieces(count, self.device):
            seen = gather(self._places(rows)).transpose(0, 1).flatten(1)
            lows.append(seen.amin(1))
            highs.append(seen.amax(1))
        low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
        self.limits_ = torch.stack([low, high]).cpu().numpy()

    def _learn_centres(self, windows: Windows) -> None:
        """The mean features of each class that occurs, of length 1 like all features."""
        codes, self.cells_ = joint_classes(windows, self.policy_.keep)
        features = self._features(windows).cpu().numpy()
        means = np.stack([features[codes == code].mean(0) for code in range(len(self.cells_))])
        self.centres_ = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        if self.settings.panel:
            self.panel_ = self._panel().fit_codes(windows.scaled(None), codes, len(self.cells_))

    def _panel(self) -> Ensemble:
        return Ensemble(self.settings.panel, PANEL, derived_seed(self.seed, READER), self.device)

    def _fit_generator(
        self, gather: Gather, told: torch.Tensor, seed: int, parts: Sequence[int] = ()
    ) -> None:
        """The denoiser of what `gather` gives, told (n, size), which may have several parts."""
        with seeded(seed):
            net = self._blank_net("generator").to(self.device)
        self.nets_["generator"], self.metrics_["generator_loss"] = train_denoiser(
            net,
            gather,
            told,
            self._levels(),
            self.settings.generator_course(len(told)),
            seed,
            dropped=self.settings.dropped,
            decay=self.settings.average,
            parts=parts,
            of_velocity=isinstance(net, FromVelocity),
            compiled=self.settings.compiled,
            checkpoint=self.checkpoint,
        )

    @torch.no_grad()
    def _features(self, windows: Windows) -> torch.Tensor:
        """What the kept attributes' networks make of all windows: (n, features)."""
        gather = self._gather(windows)
        parts = [
            self._encoded(gather(self._places(rows))) for rows in pieces(len(windows), self.device)
        ]
        return torch.cat(parts)

    def _kept(self, windows: Windows) -> np.ndarray:
        """Codes of all kept attributes: (n, attributes)."""
        return np.stack([windows.codes(name) for name in self.policy_.keep], axis=1)

    def _gather(self, windows: Windows) -> Gather:
        """Gives the windows at some places, real and on the device."""
        gather = windows.on(self.device)
        return lambda index: as_real(gather[index])

    # Obfuscating.

    @torch.no_grad()
    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        inputs = self._inputs(windows, strength, rng)
        chance = torch.Generator().manual_seed(int(rng.integers(2**63)))
        signal = self._made(inputs, len(windows), chance)
        return signal[:, ::2] + 1j * signal[:, 1::2] if self.complex_ else signal

    def _inputs(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, torch.Tensor]:
        """All that a window is made from: noise, what is told, what is avoided, how strongly."""
        chosen, count = self.settings, len(windows)
        tries = (chosen.tries,) if chosen.tries > 1 else ()
        noise = rng.standard_normal((count, *tries, *self._space()), dtype=np.float32)
        avoided = self._avoided(windows, rng)
        weights = {"keep": _numbers(strength.get("keep", np.full(count, chosen.keep)))}
        for name, codes in avoided.items():
            given = _numbers(strength.get(name, np.full(count, chosen.avoid)))
            weights[name] = given * (codes != UNKNOWN).cpu()
        told = self._told(windows, strength, rng)
        inputs = {"noise": torch.from_numpy(noise), "told": told}
        inputs |= {_code(name): codes for name, codes in avoided.items()}
        # What is switched off for all windows is not computed at all.
        return inputs | {_weight(name): one for name, one in weights.items() if one.any()}

    def _made(self, inputs: Inputs, count: int, chance: torch.Generator) -> np.ndarray:
        """Signals, piece by piece; on a GPU the sampling is recorded once and replayed."""
        many, made = count > piece_on(self.device) and self.settings.sampler != "ddpm", []
        work = self._sampling(chance, many)
        for rows in track([*pieces(count, self.device)], "windows"):
            piece = {name: one[rows].to(self.device) for name, one in inputs.items()}
            if rows.start == 0 and many:
                work = capture(work, piece)
            made.append(work(piece).cpu().numpy())
        return np.concatenate(made)

    @torch.no_grad()
    def sampling_seconds(self, windows: Windows, repeats: int = 3) -> float:
        """Seconds a window that sampling takes once all is warm, on 2,048 windows or less."""
        self._check_fitted()
        some = windows.select(np.arange(min(PIECE, len(windows)))).scaled(self.scaling_)
        generator = np.random.default_rng(0)
        piece = {
            name: one.to(self.device) for name, one in self._inputs(some, {}, generator).items()
        }
        work = capture(self._sampling(torch.Generator(), many=True), piece)
        return median_seconds(lambda: work(piece).cpu(), repeats) / len(some)

    def _sampling(self, chance: torch.Generator, many: bool) -> Callable[[Inputs], torch.Tensor]:
        """From a piece's noise to its signals; with `many` pieces of one size still to come."""
        chosen, levels, net = self.settings, self._levels(), self.nets_["generator"]
        once, known_of, denoise = 1, _as_it_is, cast(Callable[..., torch.Tensor], net)
        if isinstance(net, ResidualDenoiser):
            # All tries of a window are told the same, at all levels: what that comes to is once.
            once, known_of, denoise = chosen.tries, autocast_bf16(net.condition), net.denoised
        denoiser = autocast_bf16(
            torch.compile(denoise, dynamic=False) if many and chosen.compiled else denoise
        )
        each = (2, -1) + (1,) * (len(self._space()) - 1)
        low, high = torch.from_numpy(self.limits_).to(self.device).view(each)

        def work(piece: Inputs) -> torch.Tensor:
            keep, told = piece.get(_weight("keep"), 0.0), self._leading(piece)[::once]
            known, nothing = known_of(told), known_of(torch.zeros_like(told))
            led = classifier_free(denoiser, known, keep, nothing)
            if (beside := self._beside(piece)) is not None:
                apart = classifier_free(denoiser, known, keep, known_of(beside[::once]))
                led = within(apart, led, 0, round(LITTLE * len(levels)) - 1)
            led = bounded(led, low, high, levels)
            if readers := self._readers(piece):
                led = avoiding(led, readers, levels, cast(Gradient, chosen.gradient))
                led = bounded(led, low, high, levels)
            sample = SAMPLERS[chosen.sampler]
            return sample(led, piece["noise"], levels, chosen.steps, chance)

        if chosen.tries > 1:
            good = worth(self._judge(), self._readers)
            return best_of(chosen.tries, work, self._finished, good)
        return lambda piece: self._finished(work(piece))

    def _judge(self) -> Judge:
        centres = torch.from_numpy(self.centres_).to(self.device)
        if self.settings.judge == "panel":
            return by_panel(self.panel_, self.scaling_, centres, self.complex_)
        return by_features(self._encoded, centres)

    def _readers(self, piece: Inputs) -> list[tuple[Reader, Weight]]:
        """For each attribute that is avoided: log p of the class to avoid, and its weight."""

        def reader(name: str) -> Reader:
            codes = piece[_code(name)].clamp(min=0).unsqueeze(1)  # unknown ones have no weight
            return lambda clean: (
                self._likely(name, clean, piece["told"]).gather(1, codes).squeeze(1)
            )

        weighty = [name for name in self.policy_.hide if _weight(name) in piece]
        return [(reader(name), piece[_weight(name)]) for name in weighty]

    def _avoided(self, windows: Windows, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """The class of each hidden attribute that each window is to be led away from."""
        way = self.settings.avoids
        if way == "none":
            return {}
        found: dict[str, torch.Tensor] = {}
        for name in self.policy_.hide:
            if way == "predicted":
                found[name] = self._read(windows, name).argmax(1)
            elif way == "random":
                classes = len(self.classes_[name])
                found[name] = self._tensor(rng.integers(classes, size=len(windows)))
            elif name not in windows.attributes:
                raise Refusal(f"avoids=wearer needs the true '{name}' of every window")
            else:
                found[name] = self._tensor(windows.codes(name))
        return found

    @torch.no_grad()
    def _told(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> torch.Tensor:
        """What the generator is told of each window: (n, features)."""
        if self.settings.told == "features":
            return self._features(windows)
        centres = torch.from_numpy(self.centres_).to(self.device)
        return centres[self._cells(windows)]

    def _cells(self, windows: Windows, features: torch.Tensor | None = None) -> torch.Tensor:
        """The class of each window as it is read, a row of `cells_`; `features` if known."""
        if self.settings.panel:
            return self._tensor(self.panel_.predict(windows.scaled(None)))
        features = self._features(windows) if features is None else features
        centres = torch.from_numpy(self.centres_).to(self.device)
        return (features @ centres.T).argmax(1)

    def _condition(self, windows: Windows) -> np.ndarray:
        """What the generator is told, and the hidden classes where they are read.

        With `avoids=wearer` the true classes have their part in the output too; they are not here.
        """
        parts = [self._told(windows, {}, np.random.default_rng(0))]
        if self.settings.avoids == "predicted":
            for name, codes in self._avoided(windows, np.random.default_rng(0)).items():
                parts.append(nn.functional.one_hot(codes, len(self.classes_[name])).float())
        return torch.cat(parts, dim=1).cpu().numpy()

    def _places(self, rows: slice) -> torch.Tensor:
        return torch.arange(rows.start, rows.stop, device=self.device)

    def _levels(self) -> NoiseSchedule:
        return _linear_levels(self.settings.levels, self.device)

    def _tensor(self, codes: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(codes.astype(np.int64)).to(self.device)

    def _real_shape(self) -> tuple[int, ...]:
        """The shape of a window, a complex channel as two."""
        return (self.shape_[0] * (2 if self.complex_ else 1), *self.shape_[1:])

    # Keeping.

    def _state(self) -> dict[str, np.ndarray]:
        weights = {
            f"nets.{which}.{name}": value.cpu().numpy()
            for which, net in self.nets_.items()
            for name, value in net.state_dict().items()
        }
        return {
            "cells": self.cells_,
            "centres": self.centres_,
            "limits": self.limits_,
            **weights,
            **(
                {f"panel.{k}": v for k, v in self.panel_.state().items()}
                if self.settings.panel
                else {}
            ),
        }

    def _restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.cells_, self.centres_ = state["cells"], state["centres"]
        self.limits_ = state["limits"]
        if self.settings.panel:
            seen = seen_shape(self.shape_, self.complex_)
            self.panel_ = self._panel().restore(part_of(state, "panel."), seen, len(self.cells_))
        self.nets_: dict[str, nn.Module] = {}
        for which in self._net_names():
            net = self._blank_net(which)
            own = part_of(state, f"nets.{which}.")
            net.load_state_dict({name: torch.from_numpy(array) for name, array in own.items()})
            self.nets_[which] = net.eval().to(self.device)

    @abstractmethod
    def _net_names(self) -> tuple[str, ...]:
        """All networks of `nets_`."""


@lru_cache(maxsize=8)  # a stream asks for every window
def _linear_levels(count: int, device: str) -> NoiseSchedule:
    return NoiseSchedule.linear(count).to(device)


def _as_it_is(told: torch.Tensor) -> torch.Tensor:
    return told


def _numbers(weights: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(weights, np.float32))


def _weight(name: str) -> str:
    return f"weight of {name}"


def _code(name: str) -> str:
    return f"avoided class of {name}"
