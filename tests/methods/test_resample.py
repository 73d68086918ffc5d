"""Resampling: only training windows come out, of the class that was read, and no test window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sensorveil.data.catalog import load
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.resample import Resample
from sensorveil.methods.run import load_run, save_run


def fitted(windows: Windows, keep: str | list[str] = "activity", **rest: int) -> Resample:
    return Resample(width=8, epochs=6, batch=16, **rest).fit(windows, keep=keep, hide="gender")


def donors(out: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """For each window that came out, the training window that it is, up to rounding."""
    found = []
    scale = pool.std((0, *range(2, pool.ndim)), keepdims=True)[0]
    for window in out:
        away = np.abs((pool - window) / scale).max(tuple(range(1, pool.ndim)))
        assert away.min() < 1e-4, "this is no training window"
        found.append(int(away.argmin()))
    return np.array(found)


@pytest.mark.parametrize("kind", ["signal", "complex", "image"])
def test_only_training_windows_of_the_class_that_was_read(kind: str) -> None:
    train, test = example_windows(kind, seed=0), example_windows(kind, seed=1)
    obfuscator = fitted(train)
    out = obfuscator.obfuscate(test, seed=1)
    taken = donors(out.signal, train.signal)
    read = obfuscator.reader_.predict(test)
    np.testing.assert_array_equal(train.labels["activity"][taken], read)
    assert (read == test.labels["activity"]).mean() > 0.8


def test_every_donor_has_the_same_chance() -> None:
    train = example_windows()
    obfuscator = fitted(train)
    counts = np.zeros(len(train))
    for seed in range(40):
        taken = donors(obfuscator.obfuscate(train, seed=seed).signal, train.signal)
        np.add.at(counts, taken, 1)
    read = np.bincount(obfuscator.reader_.predict(train), minlength=2)
    each = 40 * read[train.labels["activity"]] / np.bincount(train.labels["activity"]).mean()
    # 96 draws like these lie within four standard deviations with near certainty.
    assert (np.abs(counts - each) < 4 * np.sqrt(each)).all()
    assert counts.min() > 0


def test_the_hidden_label_plays_no_part() -> None:
    """Windows of one activity, of either gender, get donors of both genders alike."""
    train = example_windows()
    obfuscator = fitted(train)
    gender = train.labels["gender"]
    share = []
    for own in (0, 1):
        some = train.select(gender == own)
        taken = [
            donors(obfuscator.obfuscate(some, seed=seed).signal, train.signal) for seed in range(20)
        ]
        share.append(gender[np.concatenate(taken)].mean())
    np.testing.assert_allclose(share, 0.5, atol=0.06)


def test_several_keeps_are_read_together() -> None:
    train = example_windows()
    obfuscator = fitted(train, keep=["activity", "weight"])
    assert obfuscator.cells_.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    taken = donors(obfuscator.obfuscate(train, seed=1).signal, train.signal)
    read = obfuscator.cells_[obfuscator.reader_.predict(train)]
    np.testing.assert_array_equal(train.labels["activity"][taken], read[:, 0])
    np.testing.assert_array_equal(train.labels["weight"][taken], read[:, 1])


def test_only_combinations_that_occur() -> None:
    train = example_windows()
    both = train.labels["activity"] * (1 - train.labels["weight"])
    obfuscator = fitted(
        replace(train, labels={**train.labels, "weight": both}), keep=["activity", "weight"]
    )
    assert obfuscator.cells_.tolist() == [[0, 0], [1, 0], [1, 1]]


def test_windows_of_unknown_class_are_never_given_away() -> None:
    train = example_windows()
    codes = train.labels["activity"].copy()
    codes[:40] = UNKNOWN
    obfuscator = fitted(replace(train, labels={**train.labels, "activity": codes}))
    taken = donors(obfuscator.obfuscate(train, seed=1).signal, train.signal)
    assert taken.min() >= 40
    assert len(obfuscator.pool_) == len(train) - 40


def numbered(windows: Windows) -> Windows:
    """The same windows on samples that are all different, so that each can be recognised."""
    store = np.arange(windows.store.size, dtype=np.float32).reshape(windows.store.shape)
    return replace(windows, store=store)


def test_nothing_of_the_test_is_in_a_saved_run(tmp_path: Path) -> None:
    split = load("watch", "recording")
    train, test = numbered(split.train), numbered(split.test)
    # Sixty windows, spread over classes, train in a moment; train and test share one store.
    train, test = train.select(slice(None, None, len(train) // 60)), test.select(slice(0, 200))
    assert train.store.shape == test.store.shape
    obfuscator = Resample(width=4, epochs=1).fit(train, "exercise", "side")
    arrays = load_file(save_run(obfuscator, tmp_path / "run") / "model.safetensors")
    held = set(arrays["method.pool.store"].reshape(-1).tolist())
    assert held == set(train.signal.reshape(-1).tolist())
    for name, array in arrays.items():
        if array.size > 1000:
            assert not np.isin(test.signal, array).any(), name


def test_a_saved_run_draws_from_the_same_pool(tmp_path: Path) -> None:
    train, test = example_windows("complex"), example_windows("complex", seed=1)
    obfuscator = fitted(train, seed=5)
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.obfuscate(test, seed=3).signal, obfuscator.obfuscate(test, seed=3).signal
    )


def test_the_pool_is_counted() -> None:
    obfuscator = fitted(example_windows())
    assert obfuscator.metrics_["pool_windows_by_class"] == [48, 48]
    assert [len(losses) for losses in obfuscator.metrics_["reader_loss"]] == [6]


def test_several_readers_decide_together(tmp_path: Path) -> None:
    """Each member reads in its own way, and the class is that of their mean."""
    train, test = example_windows(), example_windows(seed=1)
    obfuscator = Resample(readers=3, width=4, epochs=1, batch=48).fit(train, "activity", "gender")
    shares = [np.exp(member.log_probabilities(test)) for member in obfuscator.reader_.members]
    assert np.abs(shares[0] - shares[1]).max() > 1e-3
    read = np.mean(shares, axis=0).argmax(1)
    out = obfuscator.obfuscate(test, seed=1)
    np.testing.assert_array_equal(train.labels["activity"][donors(out.signal, train.signal)], read)
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    np.testing.assert_array_equal(again.obfuscate(test, seed=1).signal, out.signal)


@pytest.mark.parametrize(
    "missing",
    [
        "pool.store",
        "pool.offset",
        "pool.code",
        "cells",
        "reader.0.mean",
        "reader.0.net.head.0.bias",
    ],
)
def test_a_model_file_that_lacks_something(missing: str, tmp_path: Path) -> None:
    folder = save_run(fitted(example_windows()), tmp_path / "run")
    arrays = load_file(folder / "model.safetensors")
    del arrays[f"method.{missing}"]
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(Refusal, match=missing.split(".")[-1]):
        load_run(folder)
