"""A generator of Wi-Fi CSI, and four ways to train it, of which two protect its donors.

Wang, Zhao, Mao and Wang, Privacy-Preserving Wi-Fi Data Generation via Differential Privacy in
Diffusion Models (2024).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import nn

from sensorveil.data.phases import aligned, antennas_of
from sensorveil.data.windows import Scaling, Windows
from sensorveil.diffusion.guidance import classifier_free
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.diffusion.schedule import drawn_noise
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.base import Capabilities
from sensorveil.methods.csi_settings import PRESETS, CsiSettings
from sensorveil.methods.generator import ClassGenerator
from sensorveil.methods.guarantee import Guarantee
from sensorveil.nets.csi import CsiTransformer, Repair, from_pairs
from sensorveil.nets.degradation import Degradation, rf_diffusion
from sensorveil.nets.generator_training import (
    Material,
    train_all_privately,
    train_hybrid,
    train_parts_privately,
    train_plainly,
)
from sensorveil.nets.private_training import (
    Canaries,
    Spent,
    epsilon,
    require_opacus,
    secret_generator,
    train_privately,
)
from sensorveil.train import AveragedWeights, TrainConfig, derived_seed, seeded

_ASKED = 8  # levels at which it is asked how well it knows a window

_GENERATOR, _REPAIR, _SECRET, _DRAWS = 21, 22, 23, 24  # what seeds are for

_PLAIN = "every update saw the windows as they are, without clipping or noise"
_HYBRID = (
    "the first phase (lines 1 to 3 of algorithm 1) saw all windows without clipping or noise, and"
    " so did the joint updates (lines 11, 14 and 15); the noise of lines 7 to 9 takes none of that"
    " back"
)
_REPEATABLE = "the noise was drawn from the seed, and whoever has the run can take it out again"


class CsiGenerator(ClassGenerator):
    """A complex diffusion transformer, told the kept classes.

    Modes: `plain`; `hybrid`, the paper's algorithm 1, which has no epsilon; `hybrid-dp`, which
    learns plainly from people who are named `public` and goes on with all others by DP-SGD alone;
    `dp`, DP-SGD from the start. What an epsilon covers is the whole run: scaling and reader too.

    Preset `paper` has the sizes of RF-Diffusion's code for Wi-Fi, on which the paper builds: 32
    blocks of width 128, 100 levels from 1e-4 to 0.003, whose noises add up by amplitudes, and a
    blur that changes nothing a float can show. Its last level leaves most of the signal, so that
    samples begin where training never was. `sound` (for a GPU) and `fast` (for two cores) end in
    noise, and add up variances. What the paper leaves out, or differs:

    - attention compares by Re(q conj(k)); their code has softmaxes of both parts, unconjugated,
      and drops half of the weights out.
    - epochs, batch, rates, noise, clip, lambda and the repairing network: the paper names none.
    - they sample by restoring a true window that was degraded; here samples begin in noise.
    - the averaged weights sample, in the modes that do not go on from them.

    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows("complex")
    >>> made = CsiGenerator(epochs=1, reader_epochs=1).fit(windows, "activity", "gender")
    >>> made.generate({"activity": "1"}, count=3, seed=0).signal.shape
    (3, 2, 32)
    >>> print(made.guarantee())
    no epsilon: every update saw the windows as they are, without clipping or noise
    """

    name = "csi"
    summary = "windows that a complex diffusion model makes from the class that was read"
    capabilities = Capabilities(
        strengths={"keep": "how strongly samples are led towards their class"},
        modalities=("signal", "complex"),
    )
    Settings = CsiSettings
    presets = PRESETS
    settings: CsiSettings

    canaries: Canaries | None = None
    """What an audit plants among the private gradients of the generator (`audit/one_run.py`)."""

    # Training.

    def _learn(self, windows: Windows) -> Guarantee:
        ways: dict[str, Callable[[Windows], Guarantee]] = {
            "plain": self._learn_plainly,
            "hybrid": self._learn_hybrid,
            "hybrid-dp": self._learn_with_public,
            "dp": self._learn_privately,
        }
        if self.settings.mode != "plain":
            require_opacus()
        if self.settings.phases == "aligned":  # they have another mean than before
            self.scaling_ = Scaling.of(windows)
            windows = windows.scaled(self.scaling_)
        return ways[self.settings.mode](windows)

    def _learn_plainly(self, windows: Windows) -> Guarantee:
        """Equation (6)."""
        chosen = self.settings
        self._train_reader(windows)
        averaged = AveragedWeights(self._net, chosen.average)
        self.metrics_["generator_loss"] = train_plainly(
            self._net,
            self._material(windows),
            TrainConfig(chosen.epochs, chosen.batch, chosen.rate),
            derived_seed(self.seed, _GENERATOR),
            averaged,
            self.checkpoint,
        )
        self._net.load_state_dict(averaged.network.state_dict())
        return Guarantee.none(_PLAIN)

    def _learn_hybrid(self, windows: Windows) -> Guarantee:
        """Algorithm 1."""
        self._learn_plainly(windows)
        with self._drawing():
            train_hybrid(
                self._net,
                self._repair,
                self._material(windows),
                self._owners(windows),
                self.settings.private_course(self.settings.private_rate),
                self._secret(),
                self.settings.repair,
            )
        return Guarantee.none(_HYBRID)

    def _learn_with_public(self, windows: Windows) -> Guarantee:
        """The first phase on public windows alone, all else by DP-SGD on the others."""
        public = np.isin(windows.subject, self._public_people())
        if not public.any() or public.all():
            raise Refusal("hybrid-dp needs windows of people who are public, and of others")
        self.scaling_ = Scaling.of(windows.select(public))
        windows = windows.scaled(self.scaling_)
        self._learn_plainly(windows.select(public))
        private = windows.select(~public)
        with self._drawing():
            spent = train_parts_privately(
                self._net,
                self._repair,
                self._material(private),
                self._owners(private),
                self.settings.private_course(self.settings.private_rate),
                self._secret(),
                self.settings.repair,
                self.canaries,
            )
        return self._promise([spent], f"but for the people named public ({self.settings.public}), ")

    def _learn_privately(self, windows: Windows) -> Guarantee:
        """DP-SGD on reader and generator from the start; no statistic of the windows is used."""
        shape = (self.shape_[0],) + (1,) * (len(self.shape_) - 1)
        mean = np.zeros(shape, np.complex64 if self.complex_ else np.float32)
        self.scaling_ = Scaling(mean, np.full(shape, self.settings.scale, np.float32))
        windows = windows.scaled(self.scaling_)
        secret, owners = self._secret(), self._owners(windows)
        averaged = AveragedWeights(self._net, self.settings.average)
        with self._drawing():
            spent = [
                self._train_reader_privately(windows, owners, secret),
                train_all_privately(
                    self._net,
                    self._material(windows),
                    owners,
                    self.settings.private_course(self.settings.private_rate),
                    secret,
                    averaged,
                    self.canaries,
                ),
            ]
        self._net.load_state_dict(averaged.network.state_dict())
        return self._promise(spent, "")

    def _train_reader_privately(
        self, windows: Windows, owners: torch.Tensor, secret: torch.Generator
    ) -> Spent:
        reader, gather = self.nets_["reader"], self._gather_real(windows)
        labels = self._tensor(self._kept(windows))

        def losses(index: torch.Tensor) -> torch.Tensor:
            _, scores = reader(gather(index))
            wrong = [
                nn.functional.cross_entropy(one, labels[index, which], reduction="none")
                for which, one in enumerate(scores)
            ]
            return torch.stack(wrong).sum(0)

        course = self.settings.private_course(self.settings.reader_rate)
        return train_privately(reader, losses, owners, course, secret, what="private reader")

    def _promise(self, spent: list[Spent], but: str) -> Guarantee:
        """The epsilon of a run in which every update of private windows was clipped and noised."""
        if self.settings.repeatable:
            return Guarantee.none(_REPEATABLE)
        unit = "one window" if self.settings.unit == "window" else "all windows of one person"
        return Guarantee(
            epsilon=epsilon(spent, self.settings.delta),
            delta=self.settings.delta,
            unit=unit,
            why=f"{but}every update was clipped and noised (PRV accountant)",
        )

    def _owners(self, windows: Windows) -> torch.Tensor:
        """The unit of privacy that each window belongs to."""
        one_each = self.settings.unit == "window"
        return self._tensor(np.arange(len(windows)) if one_each else windows.subject)

    def _public_people(self) -> list[int]:
        people = self.classes_["subject"]
        found = []
        for name in self.settings.public.split("+"):
            if name not in people:
                raise refuse_unknown("public person", name, people)
            found.append(people.index(name))
        return found

    def _secret(self) -> torch.Generator:
        """Draws and noise of DP-SGD: from the operating system where there is a promise."""
        promised = self.settings.mode != "hybrid" and not self.settings.repeatable
        return secret_generator(self.device, None if promised else derived_seed(self.seed, _SECRET))

    def _drawing(self) -> AbstractContextManager[None]:
        """Levels and noise that training takes out again; these are no secret."""
        return seeded(derived_seed(self.seed, _DRAWS))

    def _material(self, windows: Windows) -> Material:
        degradation = self._degradation(self.shape_[-1])
        return Material(
            self._gather(windows), self._conditions(windows), degradation, self.settings.dropped
        )

    def _reader_course(self) -> TrainConfig:
        chosen = self.settings
        return TrainConfig(chosen.reader_epochs, chosen.batch, chosen.reader_rate)

    def _prepared(self, windows: Windows) -> Windows:
        """Without what the card did to the phases, where that is asked for."""
        if self.settings.phases == "aligned" and self.complex_:
            store = aligned(windows.store, antennas_of(self.channels_))
            windows = replace(windows, store=store)
        return super()._prepared(windows)

    # Sampling, and being asked.

    def restored(self, windows: Windows, seed: int = 0) -> Windows:
        """Line 16 of algorithm 1: true windows, degraded to the last level, restored and repaired.

        The published code gives these out as generated. Each of them is made of a true window, so
        no epsilon covers them: they are here to show what they give away.
        """
        self._check_fitted()
        self._check_alike(windows)
        chance = torch.Generator().manual_seed(seed)
        degradation = self._degradation(self.shape_[-1])
        last = len(degradation) - 1

        def restore(x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
            noisy = degradation.noised(x, drawn_noise(x, chance), last)
            level = torch.full((len(x),), last, device=x.device)
            found: torch.Tensor = self._repair(self._net(noisy, level, told))
            return found

        made = from_pairs(self._in_pieces(windows, restore), self.complex_).numpy()
        return self._as_windows(made, self._kept(windows))

    def _make(
        self, condition: torch.Tensor, weight: torch.Tensor, start: torch.Tensor, seed: int
    ) -> torch.Tensor:
        chosen, degradation = self.settings, self._degradation(start.shape[-1])
        x = degradation.start(start)

        def restore(x: torch.Tensor, t: int) -> torch.Tensor:
            return classifier_free(self._net, x, t, condition, weight)

        if chosen.sampler == "rf-diffusion":
            chance = torch.Generator().manual_seed(seed)
            x = rf_diffusion(restore, x, degradation, chosen.steps, chance)
        else:
            sampler = SAMPLERS[chosen.sampler](degradation.levels, chosen.steps)
            for t, t_next in sampler:
                x = sampler.step(x, restore(x, t), t, t_next)
        # Line 16 of algorithm 1. Where nothing was repaired in training, this changes nothing.
        repaired: torch.Tensor = self._repair(x)
        return repaired

    def _errors(
        self, x: torch.Tensor, condition: torch.Tensor, chance: torch.Generator
    ) -> torch.Tensor:
        """Equation (9) at levels all over, mean over them."""
        degradation = self._degradation(x.shape[-1])
        found = []
        for t in torch.linspace(0, len(degradation) - 1, _ASKED).round().long():
            noisy = degradation.noised(x, drawn_noise(x, chance), int(t))
            restored = self._net(noisy, t.to(x.device).expand(len(x)), condition)
            found.append((self._repair(restored) - x).square().mean((1, 2)))
        return torch.stack(found).mean(0)

    def _degradation(self, length: int) -> Degradation:
        chosen = self.settings
        return Degradation.linear(
            length, chosen.levels, chosen.first, chosen.last, chosen.blur, chosen.sums
        ).to(self.device)

    # Networks.

    def _nets(self) -> dict[str, nn.Module]:
        channels, chosen = self.shape_[0], self.settings
        with seeded(derived_seed(self.seed, _GENERATOR)):
            net = CsiTransformer(channels, self._sizes(), chosen.transformer())
        with seeded(derived_seed(self.seed, _REPAIR)):
            repair = Repair(2 * channels, chosen.repair_width)
        return {"generator": net, "repair": repair}

    @property
    def _net(self) -> CsiTransformer:
        return cast(CsiTransformer, self.nets_["generator"])

    @property
    def _repair(self) -> Repair:
        return cast(Repair, self.nets_["repair"])
