"""What the papers measure of diffusion methods themselves: time, sizes, and CLOAK's figure 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.timing import median_seconds
from sensorveil.data.windows import Windows
from sensorveil.files import part_of
from sensorveil.information import mutual_information_mine
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.negative_guidance import NegativelyGuided
from sensorveil.train import Checkpoint

_MAX_WINDOWS = 2048


def sampling_seconds(obfuscator: NegativelyGuided, windows: Windows, repeats: int = 3) -> float:
    """Seconds for each window that obfuscation takes, once all is warm, on 2,048 windows or less."""
    some = windows.select(np.arange(min(_MAX_WINDOWS, len(windows))))
    return median_seconds(lambda: obfuscator.obfuscate(some, seed=0), repeats) / len(some)


def overhead(obfuscator: NegativelyGuided, windows: Windows) -> dict[str, Any]:
    """CLOAK's table VI: parameters and size (MB of 2^20 bytes, float32) of each network, and time.

    Seconds are those of one window where `windows` go together. The encoder and the decoder of an
    autoencoder are counted together; the paper leaves out the encoder, which sampling needs not.
    """
    sizes = {which: _parameters(network) for which, network in _networks(obfuscator).items()}
    sizes["total"] = sum(sizes.values())
    found = {
        which: {"parameters": count, "megabytes": round(count * 4 / 2**20, 2)}
        for which, count in sizes.items()
    }
    return {"networks": found, "seconds_a_window": sampling_seconds(obfuscator, windows)}


def information_over_training(
    obfuscator: Cloak, train: Windows, held: Windows, quick: bool = False
) -> list[dict[str, float]]:
    """CLOAK's figure 5: bits about every attribute in z_U, after each epoch of the encoder.

    The encoder of the first kept attribute is trained again on `train`, from the same seed. MINE
    estimates the bits on `held`, which should be windows of other people.
    """
    name = obfuscator.policy_.keep[0]
    watcher = _EncoderWatcher(obfuscator, obfuscator._standard(held), name, quick)
    obfuscator.train_encoder(obfuscator._standard(train), name, watcher)
    return watcher.found


class _EncoderWatcher(Checkpoint):
    """Is given the state of a training after each epoch, measures it, and keeps nothing."""

    def __init__(self, obfuscator: Cloak, held: Windows, name: str, quick: bool) -> None:
        self.obfuscator, self.held, self.quick = obfuscator, held, quick
        network = obfuscator._build_network(f"encoder of {name}")
        self.network = network.eval().to(obfuscator.device)
        self.found: list[dict[str, float]] = []

    def load(self, stage: str) -> dict[str, torch.Tensor]:
        return {}

    def save(self, stage: str, state: Mapping[str, torch.Tensor], is_last: bool) -> None:
        self.network.load_state_dict(part_of(state, "networks.0."))
        signal = torch.from_numpy(self.held.signal).to(self.obfuscator.device)
        with torch.no_grad():
            codes = self.network(signal).cpu().numpy()
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


def _networks(obfuscator: NegativelyGuided) -> dict[str, nn.Module]:
    if not isinstance(obfuscator, Cloak):
        return obfuscator.networks_
    diffusion = obfuscator._diffusion
    others = {k: v for k, v in obfuscator.networks_.items() if k != "diffusion"}
    return {"autoencoder": diffusion.autoencoder, "denoiser": diffusion.denoiser, **others}


def _parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())
