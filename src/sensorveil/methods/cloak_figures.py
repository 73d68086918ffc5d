"""What the paper of CLOAK measures of the method itself: figure 5 and table VI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from sensorveil.data.windows import Windows
from sensorveil.files import part_of
from sensorveil.measures.information import mutual_information_mine
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.guided import GuidedDiffusion
from sensorveil.train import Checkpoint


def information_over_training(
    obfuscator: Cloak, train: Windows, held: Windows, quick: bool = False
) -> list[dict[str, float]]:
    """Figure 5: bits that z_U tells of every attribute, after each epoch of the encoder.

    `obfuscator` is fitted; its first kept attribute's encoder is trained again on `train`, from the same
    seed, and asked about windows `held`, which should be of people whom it is not trained on.
    Values are held-out estimates by MINE: none is above what there is, but by chance.
    """
    name = obfuscator.policy_.keep[0]
    watcher = _Watcher(obfuscator, held.scaled(obfuscator.scaling_), name, quick)
    obfuscator.train_encoder(train.scaled(obfuscator.scaling_), name, watcher)
    return watcher.found


def overhead(obfuscator: GuidedDiffusion, windows: Windows) -> dict[str, Any]:
    """Table VI: parameters and size (MB of 2^20 bytes, float32) of each network, and the time.

    Seconds are those of one window where `windows` go together. Encoder and decoder of an
    autoencoder are counted together; the paper leaves out the encoder, which sampling needs not.
    The models of a panel are one entry.
    """
    sizes = {which: _parameters(net) for which, net in obfuscator.nets_.items()}
    if obfuscator.settings.panel:
        sizes["panel"] = sum(_parameters(member.net_) for member in obfuscator.panel_.members)
    sizes["total"] = sum(sizes.values())
    found = {
        which: {"parameters": count, "megabytes": round(count * 4 / 2**20, 2)}
        for which, count in sizes.items()
    }
    return {"networks": found, "seconds_a_window": obfuscator.sampling_seconds(windows)}


def _parameters(net: nn.Module) -> int:
    return sum(weight.numel() for weight in net.parameters())


class _Watcher(Checkpoint):
    """Is handed what a training has after each epoch; asks about that, and keeps nothing."""

    def __init__(self, obfuscator: Cloak, held: Windows, name: str, quick: bool) -> None:
        self.obfuscator, self.held, self.quick = obfuscator, held, quick
        self.net = obfuscator._blank_net(f"encoder.{name}").eval().to(obfuscator.device)
        self.found: list[dict[str, float]] = []

    def load(self, stage: str) -> dict[str, torch.Tensor]:
        return {}

    def save(self, stage: str, kept: Mapping[str, torch.Tensor], is_last: bool) -> None:
        self.net.load_state_dict(part_of(kept, "networks.0.0."))
        codes = self.obfuscator.encoded(self.net, self.held).cpu().numpy()
        self.found.append({name: self._bits(codes, name) for name in self.held.attributes})

    def _bits(self, codes: np.ndarray, name: str) -> float:
        return mutual_information_mine(
            codes,
            self.held.codes(name),
            self.obfuscator.seed,
            groups=self.held.recording,
            quick=self.quick,
            device=self.obfuscator.device,
        )
