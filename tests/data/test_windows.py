"""Windows: views that cost nothing, against slices cut one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.windows import UNKNOWN, Origin, Scaling, Windows
from sensorveil.errors import Refusal

KINDS = ("real", "complex", "image")


def made(
    kind: str = "real", seed: int = 0, length: int = 8, stride: int = 3, total: int = 60
) -> Windows:
    """Overlapping windows over two recordings, each channel in units of its own."""
    rng = np.random.default_rng(seed)
    shape = (2, 5, total) if kind == "image" else (2, total)
    store = rng.normal(size=shape)
    if kind == "complex":
        store = store + 1j * rng.normal(size=shape) * 2
    scale = np.array([50.0, 0.01]).reshape(2, *(1,) * (len(shape) - 1))
    store = (store * scale + 3 * scale).astype(np.complex64 if kind == "complex" else np.float32)
    half = total // 2
    start = np.arange(0, half - length + 1, stride)
    recording = np.repeat([0, 1], len(start))
    count = len(recording)
    return Windows(
        store=store,
        offset=np.concatenate([start, half + start]),
        length=length,
        start=np.concatenate([start, start]),
        recording=recording,
        recordings=("ann-walk", "bob-run"),
        labels={"gender": np.arange(count) % 3 - 1, "subject": recording},
        classes={"gender": ("female", "male"), "subject": ("ann", "bob")},
        sample_rate=50.0,
        channels=("x", "y"),
        origin=Origin("mine", "paper", 0, "abc", "train"),
    )


def slow_signal(windows: Windows) -> np.ndarray:
    """Every window cut out of the store by hand."""
    cut = [windows.store[..., o : o + windows.length] for o in windows.offset]
    signal = np.stack(cut)
    if windows.scaling is not None:
        signal = (signal - windows.scaling.mean) / windows.scaling.deviation
    return signal


chosen = st.builds(
    made,
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 9),
    length=st.integers(2, 20),
    stride=st.integers(1, 25),
)


@settings(max_examples=40, deadline=None)
@given(windows=chosen, data=st.data())
def test_batches_are_the_slices(windows: Windows, data: st.DataObject) -> None:
    signal = slow_signal(windows)
    assert windows.shape == signal.shape[1:]
    np.testing.assert_array_equal(windows.signal, signal)
    places = st.lists(st.integers(0, len(windows) - 1), min_size=1, max_size=9)
    index = np.array(data.draw(places))
    np.testing.assert_array_equal(windows.batch(index), signal[index])
    size = data.draw(st.integers(1, len(windows) + 2))
    parts = list(windows.batches(size))
    np.testing.assert_array_equal(np.concatenate(parts), signal)
    assert all(len(part) == size for part in parts[:-1])


@settings(max_examples=40, deadline=None)
@given(windows=chosen, data=st.data())
def test_select_is_indexing(windows: Windows, data: st.DataObject) -> None:
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(windows), max_size=len(windows)))
    )
    places = data.draw(st.lists(st.integers(0, len(windows) - 1), max_size=9))
    # With no place at all numpy needs to be told that places are whole numbers.
    for index, plain in ((mask, mask), (places, np.array(places, int)), (slice(1, 3),) * 2):
        some = windows.select(index)
        np.testing.assert_array_equal(some.start, windows.start[plain])
        np.testing.assert_array_equal(some.recording, windows.recording[plain])
        for name in windows.attributes:
            np.testing.assert_array_equal(some.codes(name), windows.labels[name][plain])
        if len(some):
            np.testing.assert_array_equal(some.signal, slow_signal(windows)[plain])
        assert some.store is windows.store
        assert some.origin == windows.origin


@settings(max_examples=40, deadline=None)
@given(windows=chosen, data=st.data())
def test_coverage_and_compact(windows: Windows, data: st.DataObject) -> None:
    places = st.lists(st.integers(0, len(windows) - 1), min_size=1, max_size=4)
    some = windows.select(data.draw(places))
    cover = np.zeros(windows.store.shape[-1], int)
    for offset in some.offset:
        cover[offset : offset + some.length] += 1
    np.testing.assert_array_equal(some.coverage(), cover)
    small = some.compact()
    assert small.store.shape[-1] == (cover > 0).sum()
    np.testing.assert_array_equal(small.signal, some.signal)
    np.testing.assert_array_equal(small.start, some.start)


@settings(max_examples=40, deadline=None)
@given(windows=chosen)
def test_replaced_takes_the_new_signal(windows: Windows) -> None:
    new = slow_signal(windows)[::-1] * 2
    other = windows.scaled(Scaling.of(windows)).replaced(new)
    np.testing.assert_array_equal(other.signal, new)
    np.testing.assert_array_equal(other.start, windows.start)
    assert other.scaling is None
    assert other.store.dtype == windows.store.dtype
    assert other.recordings == windows.recordings


@settings(max_examples=40, deadline=None)
@given(windows=chosen, data=st.data())
def test_scaling_is_that_of_the_windows_laid_out(windows: Windows, data: st.DataObject) -> None:
    places = st.lists(st.integers(0, len(windows) - 1), min_size=1, max_size=9)
    some = windows.select(data.draw(places))
    scaling = Scaling.of(some)
    signal = slow_signal(some).astype(np.complex128 if some.is_complex else np.float64)
    axes = (0, *range(2, signal.ndim))
    np.testing.assert_allclose(scaling.mean.reshape(-1), signal.mean(axes), rtol=1e-5)
    np.testing.assert_allclose(scaling.deviation.reshape(-1), signal.std(axes), rtol=1e-5)
    assert scaling.mean.ndim == scaling.deviation.ndim == some.store.ndim
    assert not np.iscomplexobj(scaling.deviation)
    scaled = windows.scaled(scaling)
    np.testing.assert_allclose(scaled.signal, slow_signal(scaled), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaling.undo(scaled.signal), windows.signal, rtol=1e-3, atol=1e-3)
    assert scaled.signal.dtype == windows.store.dtype


def test_a_constant_channel_becomes_zero() -> None:
    signal = np.full((4, 2, 8), 9.81)
    windows = Windows.from_signal(signal)
    scaling = Scaling.of(windows)
    assert scaling.deviation[1, 0] == 1
    np.testing.assert_allclose(windows.scaled(scaling).signal[:, 1], 0, atol=1e-5)


@pytest.mark.parametrize("units", ["recorded", "scaled", "standardized"])
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_device_as_in_numpy(kind: str, units: str) -> None:
    windows = made(kind)
    if units != "recorded":
        windows = getattr(windows, units)(Scaling.of(windows))
    there = windows.on("cpu")
    assert len(there) == len(windows)
    got = there[torch.tensor([5, 0, 5, 2])]
    assert got.is_contiguous()
    assert got.is_complex() == windows.is_complex
    expected = slow_signal(windows)[[5, 0, 5, 2]]
    if kind == "complex" and units == "standardized":
        expected = np.stack([expected.real, expected.imag], axis=2).reshape(4, 4, -1)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(windows.batch([5, 0, 5, 2]), expected, rtol=1e-5)


def test_from_signal() -> None:
    signal = np.random.default_rng(0).normal(size=(5, 3, 4, 6))
    windows = Windows.from_signal(signal, {"tone": [0, 2, UNKNOWN, 1, 0]}, sample_rate=8.0)
    np.testing.assert_array_equal(windows.signal, signal.astype(np.float32))
    assert windows.shape == (3, 4, 6)
    assert windows.classes["tone"] == ("0", "1", "2")
    assert len(set(windows.recording)) == 5
    assert (windows.sample_rate, windows.attributes) == (8.0, ("tone", "subject"))
    with pytest.raises(Refusal, match=r"need \(n, channels, length\); this array is \(5, 3\)"):
        Windows.from_signal(np.zeros((5, 3)))


def test_a_table_has_one_row_a_window() -> None:
    windows = made()
    table = windows.to_frame()
    assert table["recording"].tolist() == [windows.recordings[r] for r in windows.recording]
    assert table["seconds"].tolist() == (windows.start / 50.0).tolist()
    assert table["subject"].tolist() == table["recording"].str[:3].tolist()
    codes = windows.labels["gender"]
    assert table["gender"].isna().tolist() == (codes == UNKNOWN).tolist()
    assert set(table["gender"][codes == 1]) == {"male"}


@pytest.mark.parametrize(
    ("kind", "lines", "images"), [("real", 2, 0), ("complex", 2, 0), ("image", 0, 1)]
)
def test_plots(kind: str, lines: int, images: int) -> None:
    axes = made(kind).plot(2)
    assert (len(axes.lines), len(axes.images)) == (lines, images)
    assert axes.get_title() == "ann-walk, from 0.12 s, gender male"
    assert len(Windows.from_signal(np.zeros((1, 20, 6))).plot(ax=axes).images) == images + 1


@pytest.mark.parametrize("kind", KINDS)
def test_saved_files_hold_what_is_documented(tmp_path: Path, kind: str) -> None:
    windows = made(kind)
    windows.save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        content = dict(file)
    assert {"signal", "start", "subject", "recording", "label_gender"} <= set(content)
    assert "label_subject" not in content
    np.testing.assert_array_equal(content["signal"], slow_signal(windows))
    np.testing.assert_array_equal(content["start"], windows.start)
    half = len(windows) // 2
    assert content["subject"].tolist() == ["ann"] * half + ["bob"] * half
    assert content["recording"].tolist() == ["ann-walk"] * half + ["bob-run"] * half
    np.testing.assert_array_equal(content["label_gender"], windows.labels["gender"])
    assert content["classes_gender"].tolist() == ["female", "male"]
    assert content["channels"].tolist() == ["x", "y"]
    assert float(content["sample_rate"]) == 50.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.npz"]
