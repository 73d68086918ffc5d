"""Removes the phase offsets that a Wi-Fi card adds to each packet.

A packet's phases are those of the channel, an offset that is the same on all subcarriers (the two
oscillators differ), and a slope over subcarriers (the start of the packet is detected a little
early or late). Offset and slope are new in every packet and carry no information about the room.
They are the same on all antennas of a card, so differences between antennas remain.

The channel's own mean offset and slope cannot be separated from them and are removed as well.
Received strength is removed before (`intel5300.unit_power`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.errors import refuse_unknown

PHASES = ("kept", "aligned")
"""Phases as received, or without the offset and slope of each packet."""


def antennas_of(channels: Sequence[str]) -> np.ndarray:
    """The antenna of each channel, from its name: the part before the subcarrier.

    Examples
    --------
    >>> antennas_of(["rx1/sc01", "rx1/sc02", "rx2/sc01"]).tolist()
    [0, 0, 1]
    """
    before = [name.replace(".", "/").rpartition("/")[0] for name in channels]
    return np.unique(before, return_inverse=True)[1]


def aligned(signal: np.ndarray, antennas: np.ndarray) -> np.ndarray:
    """Each packet of (channels, packets) without its phase offset and slope; amplitudes stay.

    The slope is the mean step of the phase from subcarrier to subcarrier within antennas, weighted
    by power, so that no phase has to be unwrapped. Subcarriers of an antenna come in order.

    Examples
    --------
    >>> flat = np.ones((4, 2), complex)
    >>> sloped = flat * np.exp(1j * (0.3 + np.array([0.5, -0.2]) * np.arange(4)[:, None]))
    >>> bool(np.allclose(aligned(sloped, np.zeros(4, int)), flat))
    True
    """
    place = np.zeros(len(antennas))
    for antenna in np.unique(antennas):
        own = antennas == antenna
        place[own] = np.arange(own.sum()) - (own.sum() - 1) / 2
    steps = signal[1:] * signal[:-1].conj() * (antennas[1:] == antennas[:-1])[:, None]
    level = signal * np.exp(-1j * place[:, None] * np.angle(steps.sum(0)))
    return (level * np.exp(-1j * np.angle(level.sum(0)))).astype(signal.dtype)


def with_phases(windows: Windows, phases: str) -> Windows:
    """The windows with phases as in PHASES; real windows stay as they are."""
    if phases not in PHASES:
        raise refuse_unknown("phases", phases, PHASES)
    if phases == "kept" or not windows.is_complex:
        return windows
    return replace(windows, store=aligned(windows.store, antennas_of(windows.channels)))
