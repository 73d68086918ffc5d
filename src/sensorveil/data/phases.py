"""What a Wi-Fi card adds to the phases of each packet, taken out again.

A packet's phases are those of the channel, a turn that is the same on all subcarriers (the two
oscillators differ), and a slope over subcarriers (the packet's begin is found a little early or
late). Turn and slope are new in every packet and say nothing of the room. They are the same on all
antennas of a card, so what remains, differences between antennas too, is the channel's own.

The channel's own mean turn and slope cannot be told from them and go as well: how far everything is
away on the whole. Received strength went before (`intel5300.unit_power`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import refuse_unknown

PHASES = ("kept", "aligned")
"""Phases as they are, or without what a Wi-Fi card adds to those of each packet."""


def antennas_of(channels: Sequence[str]) -> np.ndarray:
    """The antenna of each channel, by its name: what stands before the subcarrier.

    >>> antennas_of(["rx1/sc01", "rx1/sc02", "rx2/sc01"]).tolist()
    [0, 0, 1]
    """
    before = [name.replace(".", "/").rpartition("/")[0] for name in channels]
    return np.unique(before, return_inverse=True)[1]


def aligned(signal: np.ndarray, antennas: np.ndarray) -> np.ndarray:
    """Each packet of (channels, packets) without its turn and its slope; amplitudes stay.

    The slope is the mean step of the phase from subcarrier to subcarrier within antennas, weighed
    by power, so that nothing has to be unwrapped. Subcarriers of an antenna come in order.

    >>> flat = np.ones((4, 2), complex)
    >>> sloped = flat * np.exp(1j * (0.3 + np.array([0.5, -0.2]) * np.arange(4)[:, None]))
    >>> bool(np.allclose(aligned(sloped, np.zeros(4, int)), flat))
    True
    """
    place = np.zeros(len(antennas))
    for antenna in np.unique(antennas):
        mine = antennas == antenna
        place[mine] = np.arange(mine.sum()) - (mine.sum() - 1) / 2
    steps = signal[1:] * signal[:-1].conj() * (antennas[1:] == antennas[:-1])[:, None]
    level = signal * np.exp(-1j * place[:, None] * np.angle(steps.sum(0)))
    return (level * np.exp(-1j * np.angle(level.sum(0)))).astype(signal.dtype)


def with_phases(windows: Windows, phases: str) -> Windows:
    """The windows as all rows of a table are to see them: methods, classifiers and attackers."""
    if phases not in PHASES:
        raise refuse_unknown("phases", phases, PHASES)
    if phases == "kept" or not windows.is_complex:
        return windows
    return replace(windows, store=aligned(windows.store, antennas_of(windows.channels)))
