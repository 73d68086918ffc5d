"""Phases: whatever turn and slope a card adds to a packet, the result is the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.intel5300 import CHANNELS
from sensorveil.data.phases import aligned, antennas_of

ANTENNAS = antennas_of(CHANNELS)
PLACE = np.tile(np.arange(30), 3)


def packets(count: int, seed: int) -> np.ndarray:
    """A direct path and echoes, on three antennas by thirty subcarriers."""
    chance = np.random.default_rng(seed)
    delay, angle, size = chance.random((3, count, 4)) * np.array([0.3, 1.0, 0.5])[:, None, None]
    lag = delay[:, None] * PLACE[:, None] + angle[:, None] * ANTENNAS[:, None]
    return 1 + (size[:, None] * np.exp(-1j * lag)).sum(-1).T


@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_cards_own_part_goes_and_all_else_stays(seed: int) -> None:
    chance = np.random.default_rng(seed)
    clean = packets(6, seed)
    turn, slope = chance.uniform(-3, 3, 6), chance.uniform(-0.3, 0.3, 6)
    heard = clean * np.exp(1j * (turn + slope * PLACE[:, None]))
    np.testing.assert_allclose(aligned(heard, ANTENNAS), aligned(clean, ANTENNAS), atol=1e-9)
    np.testing.assert_allclose(np.abs(aligned(heard, ANTENNAS)), np.abs(clean), atol=1e-9)
    # Differences between antennas are the channel's own.
    found, wanted = (x[30:60] * x[:30].conj() for x in (aligned(heard, ANTENNAS), clean))
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_packets_without_power_and_single_precision() -> None:
    signal = packets(3, 2).astype(np.complex64)
    signal[:, 1] = 0
    found = aligned(signal, ANTENNAS)
    assert found.dtype == np.complex64
    assert not found[:, 1].any()
    assert np.isfinite(found).all()


def test_antennas_by_name() -> None:
    assert ANTENNAS.tolist() == [0] * 30 + [1] * 30 + [2] * 30
    assert antennas_of(["rx1.sc01", "rx2.sc01"]).tolist() == [0, 1]
    assert antennas_of(["0", "1", "2"]).tolist() == [0, 0, 0]  # names that say nothing
