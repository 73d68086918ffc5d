"""Windows played one after the other: raw windows give back what was recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.streams import streams, stretches
from sensorveil.data.windows import Windows

LENGTH = 32


def cut(recordings: list[np.ndarray], stride: int) -> Windows:
    """Windows of recordings (channels, samples)."""
    parts = [
        np.moveaxis(np.lib.stride_tricks.sliding_window_view(one, LENGTH, axis=-1), 1, 0)[::stride]
        for one in recordings
    ]
    counts = [len(part) for part in parts]
    return replace(
        Windows.from_signal(np.concatenate(parts)),
        recording=np.repeat(np.arange(len(parts)), counts),
        start=np.concatenate([stride * np.arange(count) for count in counts]),
    )


@pytest.mark.parametrize("stride", [1, 5, 10, 16, 31, 32])
def test_streams_of_raw_windows_are_the_recordings(stride: int) -> None:
    rng = np.random.default_rng(0)
    sizes = [(2, LENGTH + stride * steps) for steps in (0, 3, 20)]
    recordings = [rng.standard_normal(size, np.float32) for size in sizes]
    windows = cut(recordings, stride)
    mixed = windows.select(rng.permutation(len(windows)))
    for order in (windows, mixed):
        found = list(streams(order))
        assert [order.recording[first] for first, _ in found] == [0, 1, 2]
        for (_, signal), recorded in zip(found, recordings, strict=True):
            np.testing.assert_array_equal(signal, recorded)


def test_a_gap_ends_a_stretch() -> None:
    windows = cut([np.arange(100.0)[None]], stride=4)
    some = windows.select(np.array([0, 1, 8, 9, 17]))  # from 0, 4, 32, 36 and 68
    assert [stretch.tolist() for stretch in stretches(some)] == [[0, 1, 2, 3, 4]]
    apart = windows.select(np.array([0, 9, 17]))  # from 0, 36 and 68
    assert [stretch.tolist() for stretch in stretches(apart)] == [[0], [1, 2]]
    assert [signal[0].tolist() for _, signal in streams(apart)] == [
        list(range(32)),
        list(range(36, 100)),
    ]
    assert list(streams(windows.select([]))) == []


def test_each_sample_of_an_output_comes_from_one_window() -> None:
    windows = cut([np.zeros((1, 62))], stride=10)
    numbered = windows.replaced(np.arange(4.0)[:, None, None] * np.ones((4, 1, LENGTH)))
    ((_, signal),) = streams(numbered)
    assert signal[0].tolist() == [0.0] * 32 + [3.0] * 30
