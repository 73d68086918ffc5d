"""Several class autoencoders trained in one batched pass, and what that saves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

import torch

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.class_autoencoder import ClassAutoencoder, SharedReaders, train_networks
from sensorveil.nets.factorised import NetworkSpec, as_numbers, train_factorised

Veils = TypeVar("Veils", bound=Sequence[ClassAutoencoder])

_OWN = {"alpha", "beta", "modifier", "read_hidden"}
"""Settings that may differ between methods that are fitted together."""


def fit_together(
    obfuscators: Veils,
    windows: Windows,
    keep: str | Sequence[str],
    hide: str | Sequence[str],
    readers: SharedReaders | None = None,
) -> Veils:
    """Fits several methods of one kind at once; each learns what it would have learnt on its own.

    They may differ in seed, alpha, beta and modifier: a whole grid of ObscureNet's section 6.2 goes
    through one batched pass. Everything else must be the same. `readers` may hold those of an
    earlier call on the same windows, which are then not trained again.
    """
    alike = [
        {name: value for name, value in obfuscator.about().items() if name not in _OWN}
        | {"device": obfuscator.device, "method": obfuscator.name}
        for obfuscator in obfuscators
    ]
    for other in alike:
        differing = [name for name in alike[0] if other.get(name) != alike[0][name]]
        if differing:
            raise Refusal(f"methods that are fitted together must have one '{differing[0]}'")
    _prepare(obfuscators, windows, keep, hide, {} if readers is None else readers)
    train_networks(obfuscators)
    return obfuscators


def training_seconds(
    obfuscator: ClassAutoencoder,
    windows: Windows,
    keep: str | Sequence[str],
    hide: str | Sequence[str],
) -> dict[str, float]:
    """Seconds of the class networks in one batched pass, and one by one; readers do not count.

    Each way goes twice, in turns, and the better time counts: the first pays for starting up.
    """
    _prepare([obfuscator], windows, keep, hide, {})
    labelled_windows, schedule, design = (
        obfuscator._lesson,
        obfuscator._schedule(),
        obfuscator._design(),
    )
    gather = labelled_windows.windows.on(obfuscator.device)

    def seconds(passes: Sequence[Sequence[NetworkSpec]]) -> float:
        started = time.perf_counter()
        for specs in passes:
            train_factorised(
                design, specs, lambda index: as_numbers(gather[index]), schedule, obfuscator.device
            )
        if gather.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    ways: dict[str, Sequence[Sequence[NetworkSpec]]] = {
        "batched": [labelled_windows.specs],
        "one by one": [[spec] for spec in labelled_windows.specs],
    }
    rounds = [{name: seconds(passes) for name, passes in ways.items()} for _ in range(2)]
    return {name: min(times[name] for times in rounds) for name in ways}


def _prepare(
    obfuscators: Sequence[ClassAutoencoder],
    windows: Windows,
    keep: str | Sequence[str],
    hide: str | Sequence[str],
    readers: SharedReaders,
) -> None:
    """All of fitting but the networks; their lessons are left to be learnt."""
    for obfuscator in obfuscators:
        obfuscator.shared_readers = readers
        try:
            obfuscator.fit(windows, keep, hide)
        finally:
            obfuscator.shared_readers = None
