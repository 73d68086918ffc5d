"""A protocol on recordings: channels, rates, labels and windows against slow references."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.corpus import Corpus, apply_protocol
from sensorveil.data.io import validated
from sensorveil.data.protocol import Protocol
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal

PLAIN: dict[str, Any] = {
    "dataset": "mine",
    "version": 1,
    "sample_rate": 50,
    "default_split": "recording",
    "channels": "all",
    "window": {"length": 8, "stride": 4},
    "attributes": {"act": {"classes": ["walk", "run"], "values": {"w": "walk", "r": "run"}}},
    "splits": {"recording": {"by": "recording"}},
}


def protocol(**changes: Any) -> Protocol:
    return validated(Protocol, {**copy.deepcopy(PLAIN), **changes}, "mine.toml")


def recording(
    name: str, samples: int, who: str = "ann", signal: np.ndarray | None = None, **labels: Any
) -> Recording:
    if signal is None:
        noise = np.random.default_rng(samples).normal(size=(2, samples))
        signal = noise.astype(np.float32)
    return Recording(name, who, signal, labels)


def raw(*items: Recording, rate: float = 50.0, channels: tuple[str, ...] = ("x", "y")) -> Any:
    return Recordings(items, channels, rate)


def one(signal: np.ndarray, rules: Protocol, rate: float = 50.0, **rest: Any) -> Corpus:
    """The corpus of a single recording."""
    channels = rest.pop("channels", tuple(f"c{i}" for i in range(len(signal))))
    item = Recording("a", "ann", signal, rest.pop("labels", {"act": "w"}), rest.pop("time", None))
    return apply_protocol(rules, Recordings((item,), channels, rate))


# Windows


def slow_windows(
    items: list[Recording], length: int, stride: int, needed: bool
) -> list[tuple[str, int, int]]:
    """(recording, start, class) of every window that carries one class, found by looking."""
    codes = {"w": 0, "r": 1, "?": UNKNOWN}
    found = []
    for item in items:
        label = item.labels["act"]
        for start in range(0, item.signal.shape[-1], stride):
            seen = label[start : start + length] if isinstance(label, np.ndarray) else [label]
            whole = start + length <= item.signal.shape[-1]
            if whole and len(set(seen)) == 1 and not (needed and seen[0] == "?"):
                found.append((item.name, start, codes[seen[0]]))
    return found


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(
        st.lists(st.tuples(st.sampled_from("wr?"), st.integers(1, 15)), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    ),
    length=st.integers(2, 9),
    stride=st.integers(1, 11),
    needed=st.booleans(),
)
def test_windows_carry_one_label(
    runs: list[list[tuple[str, int]]], length: int, stride: int, needed: bool
) -> None:
    items = []
    for number, run in enumerate(runs):
        label = np.array([act for act, many in run for _ in range(many)])
        items.append(recording(str(number), len(label), act=label))
    expected = slow_windows(items, length, stride, needed)
    corpus = apply_protocol(protocol(), raw(*items))
    if not expected:
        with pytest.raises(Refusal, match=r"no recording is as long|no window carries one class"):
            corpus.windows(length, stride, ("act",) if needed else ())
        return
    windows = corpus.windows(length, stride, ("act",) if needed else ())
    got = [
        (windows.recordings[r], int(s), int(c))
        for r, s, c in zip(windows.recording, windows.start, windows.labels["act"], strict=True)
    ]
    assert got == expected
    signals = {item.name: item.signal for item in items}
    cut = [signals[name][:, start : start + length] for name, start, _ in expected]
    np.testing.assert_array_equal(windows.signal, np.stack(cut))


def test_recordings_lie_end_to_end() -> None:
    items = [recording(str(n), n, f"p{n % 2}", act="w", trial=n) for n in (9, 4, 16)]
    corpus = apply_protocol(protocol(), raw(*items))
    assert corpus.first.tolist() == [0, 9, 13]
    assert corpus.samples.tolist() == [9, 4, 16]
    np.testing.assert_array_equal(corpus.store, np.concatenate([i.signal for i in items], axis=1))
    assert corpus.classes["subject"] == ("p1", "p0")
    assert corpus.labels["subject"].tolist() == [0] * 9 + [1] * 4 + [1] * 16
    assert corpus.facts == {"act": ("w",) * 3, "trial": ("9", "4", "16")}
    assert corpus.hours == 29 / 50 / 3600


# Choosing


def test_people_and_recordings_are_chosen() -> None:
    items = [
        recording(f"{who}{trial}", 10, who, act="w", trial=trial)
        for who in ("ann", "bob", "eve")
        for trial in (1, 2)
    ]
    rules = protocol(people=["eve", "ann"], where={"trial": [2]})
    assert apply_protocol(rules, raw(*items)).recordings == ("ann2", "eve2")
    with pytest.raises(Refusal, match="none of the 6 recordings fits the protocol of mine"):
        apply_protocol(protocol(where={"trial": [3]}), raw(*items))


def test_channels_are_picked_in_the_order_of_the_protocol() -> None:
    signal = np.arange(30.0).reshape(3, 10)
    corpus = one(signal, protocol(channels=["z", "x"]), channels=("x", "y", "z"))
    np.testing.assert_array_equal(corpus.store, signal[[2, 0]])
    assert corpus.channels == ("z", "x")
    with pytest.raises(Refusal, match="channel 'w' is unknown; known: x, y, z"):
        one(signal, protocol(channels=["w"]), channels=("x", "y", "z"))


def test_complex_forms() -> None:
    signal = np.array([[3 + 4j, -1j, 0], [5 - 12j, 1, 2j]])
    kept = one(signal, protocol(form="complex"))
    assert kept.store.dtype == np.complex64
    np.testing.assert_array_equal(kept.store, signal)
    length = one(signal, protocol(form="magnitude"))
    assert length.store.dtype == np.float32
    np.testing.assert_allclose(length.store, [[5, 1, 0], [13, 1, 2]])


# Rates


def tone(hertz: float, rate: float, seconds: float = 20.0) -> np.ndarray:
    at = np.arange(round(rate * seconds)) / rate
    return (3 + 2 * np.sin(2 * np.pi * hertz * at + 0.3))[None].astype(np.float32)


@pytest.mark.parametrize(("rate", "wanted"), [(100, 50), (20, 50), (50, 20), (44.1, 50), (200, 50)])
def test_resampling_keeps_a_slow_sine(rate: float, wanted: float) -> None:
    store = one(tone(3, rate), protocol(sample_rate=wanted), rate).store
    expected = tone(3, wanted)
    assert abs(store.shape[-1] - expected.shape[-1]) <= 1
    inner = slice(int(wanted), -int(wanted))  # the filter rings at both ends
    np.testing.assert_allclose(store[0, inner], expected[0, : store.shape[-1]][inner], atol=0.02)


def test_resampling_leaves_a_level_alone() -> None:
    """A filter that took the signal for zero outside would bend its ends."""
    level = np.full((1, 1000), 9.81, np.float32)
    np.testing.assert_allclose(one(level, protocol(sample_rate=20), 50).store, 9.81, rtol=1e-6)


def test_resampling_takes_out_what_the_new_rate_cannot_hold() -> None:
    store = one(tone(35, 100), protocol(sample_rate=50), 100).store
    assert np.abs(store[0, 50:-50] - 3).max() < 0.02


def test_labels_of_uneven_times_are_those_of_the_nearest_sample() -> None:
    jitter = np.random.default_rng(0).uniform(-0.3, 0.3, 160)
    time = 100 + (np.arange(160) + jitter) / 40
    label = np.where((time - 100) % 1 < 0.5, "w", "r")
    corpus = one(
        np.zeros((1, len(time))), protocol(sample_rate=50), 40, time=time, labels={"act": label}
    )
    for place, code in enumerate(corpus.labels["act"]):
        nearest = np.argmin(np.abs(time - time[0] - place / 50))
        assert ("w", "r")[code] == label[nearest]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (np.array([0.0, 0.02, 0.01, 0.03]), "time of recording 'a' runs backwards"),
        (np.zeros(4), "time of recording 'a' does not go on"),
    ],
)
def test_times_that_cannot_be(time: np.ndarray, expected: str) -> None:
    with pytest.raises(Refusal, match=expected):
        one(np.zeros((1, 4)), protocol(), 50, time=time)


def test_complex_signals_are_not_resampled() -> None:
    signal = np.ones((1, 100), np.complex64)
    with pytest.raises(Refusal, match="recording 'a' is complex and not at 50 Hz"):
        one(signal, protocol(form="complex"), 100)
    assert one(signal, protocol(form="magnitude"), 100).store.shape == (1, 50)


# Padding


@pytest.mark.parametrize("samples", [1, 5, 8, 13])
def test_pad_makes_one_window_of_each(samples: int) -> None:
    rules = protocol(window={"length": 8, "stride": 8, "pad": -0.5})
    signal = np.random.default_rng(0).normal(size=(2, samples)).astype(np.float32)
    label = np.array(["w"] * samples)
    corpus = one(signal, rules, labels={"act": label})
    expected = np.full((2, 8), -0.5, np.float32)
    expected[:, : min(samples, 8)] = signal[:, :8]
    np.testing.assert_array_equal(corpus.store, expected)
    assert corpus.labels["act"].tolist() == [0] * 8
    assert len(corpus.windows(8, 8)) == 1


# Classes


@settings(max_examples=50, deadline=None)
@given(
    weights=st.lists(st.floats(-10, 10).map(lambda x: round(x, 1)), min_size=2, max_size=9),
    ends=st.lists(st.integers(-10, 10), min_size=1, max_size=4, unique=True).map(sorted),
    upper=st.booleans(),
)
def test_bins_of_samples_by_counting(weights: list[float], ends: list[int], upper: bool) -> None:
    classes = [str(i) for i in range(len(ends) + 1)]
    rule = {"classes": classes, ("up_to" if upper else "below"): ends}
    labels = {"weight": np.array(weights)}
    corpus = one(np.zeros((1, len(weights))), protocol(attributes={"weight": rule}), labels=labels)
    above = [sum(w > e if upper else w >= e for e in ends) for w in weights]
    assert corpus.labels["weight"].tolist() == above


def test_labels_are_translated_or_unknown() -> None:
    label = np.array(["w", "run", "walk", "sit", "None", "r"], dtype=object)
    corpus = one(np.zeros((1, 6)), protocol(), labels={"act": label})
    assert corpus.labels["act"].tolist() == [0, 1, 0, UNKNOWN, UNKNOWN, 1]
    rules = protocol(attributes={"weight": {"classes": ["a", "b"], "up_to": [70]}})
    with pytest.raises(Refusal, match="attribute 'weight' needs numbers; found 'heavy'"):
        one(np.zeros((1, 9)), rules, labels={"weight": "heavy"})


# The prepared form


@pytest.mark.parametrize("kind", ["real", "complex", "image"])
def test_the_prepared_form_comes_back_bit_for_bit(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    items = []
    for number, samples in enumerate((12, 30)):
        signal = rng.normal(size=(2, 4, samples) if kind == "image" else (2, samples))
        if kind == "complex":
            signal = signal * np.exp(1j * signal)
        label = np.where(np.arange(samples) < 10, "w", "r")
        items.append(recording(f"größe {number}", samples, "ännë", signal, act=label, trial=number))
    rules = protocol(form="complex" if kind == "complex" else "real")
    corpus = apply_protocol(rules, raw(*items))
    corpus.save(tmp_path / "prepared.safetensors", "digest")
    again = Corpus.read(tmp_path / "prepared.safetensors", "digest")
    assert again is not None
    np.testing.assert_array_equal(again.store, corpus.store, strict=True)
    for name in ("first", "samples", "labels"):
        np.testing.assert_equal(getattr(again, name), getattr(corpus, name))
    for name in ("recordings", "classes", "facts", "sample_rate", "channels"):
        assert getattr(again, name) == getattr(corpus, name)
    np.testing.assert_array_equal(again.windows(8, 1).signal, corpus.windows(8, 1).signal)
