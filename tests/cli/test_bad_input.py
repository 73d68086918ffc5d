"""Bad input through the real commands: one line that helps, exit code 2, and nothing written."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from sensorveil.classifiers import Classifier
from sensorveil.methods.baselines import NoObfuscation

Spoil = Callable[[Path], None]

SIMULATED = "--data simulated --option people=8,recordings=1,windows=3"
FIT = f"fit none --keep activity --hide gender --out out {SIMULATED}"
NOISE, RESAMPLE = FIT.replace("none", "noise", 1), FIT.replace("none", "resample", 1)
DOWNSAMPLE = FIT.replace("none", "downsample", 1)
OBFUSCATE = f"obfuscate {{noise}} --out out.npz {SIMULATED}"
EVALUATE = f"evaluate {{none}} --quick --out out.json {SIMULATED}"

# What stands in the command itself: the command, and words that its line must have.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "unknown method": (FIT.replace("none", "nose", 1), ["'nose'", "noise, none, obscurenet"]),
    "unknown dataset": (FIT + " --data motionsens", ["'motionsens'", "motionsense, simulated"]),
    "no dataset": (FIT + " --data ''", ["dataset", "motionsense, simulated"]),
    "unknown split": (FIT + " --split people", ["'people'", "recording, subject"]),
    "fold too high": (FIT + " --fold 4", ["fold 4", "'subject'", "0 to 3"]),
    "fold below zero": (FIT + " --fold -1", ["fold -1", "0 to 3"]),
    "fold of a split without": (
        FIT + " --split recording --fold 1",
        ["'recording' has no folds"],
    ),
    "unknown attribute to keep": (
        FIT + " --keep exercise",
        ["'exercise'", "activity, gender, subject, weight"],
    ),
    "unknown attribute to hide": (
        FIT + " --hide gendr",
        ["'gendr'", "activity, gender, subject, weight"],
    ),
    "unknown attribute to score": (
        EVALUATE + " --attribute gendr",
        ["'gendr'", "activity, gender, subject, weight"],
    ),
    "one class only": (FIT + " --option male=0", ["'gender' has 1 class", "nothing to"]),
    "kept and hidden": (FIT + " --hide activity", ["'activity'", "kept and hidden"]),
    "kept twice": (FIT + " --keep activity", ["twice", "activity"]),
    "hidden twice": (FIT + " --hide weight,weight", ["twice", "weight"]),
    "nothing to keep": (FIT.replace("--keep activity", "--keep ,"), ["at least one", "keep"]),
    "unknown preset": (FIT + " --preset slow", ["'slow'", "known: fast"]),
    "unknown setting": (
        RESAMPLE + " --set epoch=3",
        ["'epoch'", "batch, epochs, rate, readers, width"],
    ),
    "setting of a method without": (FIT + " --set snr=3", ["setting of none 'snr'", "known: none"]),
    "setting that is no number": (RESAMPLE + " --set epochs=many", ["'epochs'", "'many'"]),
    "setting that is no whole number": (RESAMPLE + " --set epochs=1.5", ["'epochs'", "1.5"]),
    "setting without end": (RESAMPLE + " --set epochs=inf", ["'epochs'", "inf"]),
    "setting that is no value": (RESAMPLE + " --set epochs=nan", ["'epochs'", "nan"]),
    "batch of nothing": (RESAMPLE + " --set batch=0", ["batch"]),
    "network without width": (RESAMPLE + " --set width=0", ["width"]),
    "epochs below zero": (RESAMPLE + " --set epochs=-1", ["epochs"]),
    "learning rate that is none": (RESAMPLE + " --set rate=nan", ["rate"]),
    "noise of no ratio": (NOISE + " --set snr=nan", ["snr"]),
    "noise of unknown kind": (NOISE + " --set kind=pink", ["'pink'", "gaussian, laplace"]),
    "noise of no clip": (NOISE + " --set kind=laplace,clip=0", ["clip", "above 0"]),
    "factor below one": (DOWNSAMPLE + " --set factor=0.5", ["factor", "at least 1"]),
    "factor that is none": (DOWNSAMPLE + " --set factor=nan", ["factor"]),
    "setting without value": (RESAMPLE + " --set epochs", ["'epochs'", "name=value"]),
    "setting without name": (RESAMPLE + " --set =3", ["'=3'", "name=value"]),
    "setting twice": (RESAMPLE + " --set epochs=1 --set epochs=2", ["'epochs'", "twice"]),
    "unknown device": (FIT + " --device tpu", ["'tpu'", "cpu, cuda"]),
    "seed below zero": (FIT + " --seed -1", ["seed", "-1"]),
    "options where none are": (FIT + " --data watch", ["watch takes no options", "people"]),
    "unknown option": (FIT + " --option persons=3", ["'persons'", "people", "windows"]),
    "option below zero": (FIT + " --option gender=-1", ["'gender' is -1", "0 to 10"]),
    "option that is no number": (FIT + " --option gender=big", ["'gender'", "'big'", "0 to 10"]),
    "option that is no count": (FIT + " --option seed=1.5", ["'seed' is 1.5", "whole number"]),
    "option without value": (FIT + " --option male", ["'male'", "name=value"]),
    "option named as a parameter": (FIT + " --option fold=1", ["'fold'", "people"]),
    "option named name": (FIT + " --option name=x", ["'name'", "people"]),
    "option named source": ("data info simulated --option source=x", ["'source'", "people"]),
    "place of made data": (FIT + " --from here", ["simulated", "--from"]),
    "place that is not there": (
        "fit none --keep activity --hide gender --out out --data motionsense --from gone",
        ["gone", "download"],
    ),
    "dataset that is not there": (
        "fit none --keep activity --hide gender --out out --data motionsense",
        ["datasets/motionsense", "download", "--from"],
    ),
    "table without TOML": (FIT.split(" --data")[0] + " --data table", ["TOML", "docs/table.md"]),
    "TOML that is not there": (FIT.split(" --data")[0] + " --data gone.toml", ["gone.toml"]),
    "information on nothing": ("data info nothing", ["'nothing'", "motionsense"]),
    "information from nowhere": ("data info motionsense --json --from gone", ["gone", "download"]),
    "preparing the unknown": ("data prepare nothing --from .", ["'nothing'", "motionsense"]),
    "preparing from nowhere": ("data prepare motionsense --from gone", ["gone", "download"]),
    "preparing what is made": ("data prepare simulated --from .", ["simulated", "--from"]),
    "run that is not there": (OBFUSCATE.format(noise="gone"), ["gone", "sensorveil fit"]),
    "output that is no npz": (OBFUSCATE + " --out out.csv", ["out.csv", ".npz"]),
    "unknown part": (OBFUSCATE + " --subset half", ["'half'", "all, test, train, validation"]),
    "unknown strength": (OBFUSCATE + " --strength snt=3", ["'snt'", "epsilon, snr"]),
    "strength of a method without": (EVALUATE + " --strength snr=3", ["'snr'", "known: none"]),
    "strength that is no number": (OBFUSCATE + " --strength snr=low", ["'snr'", "'low'"]),
    "strength that is not finite": (OBFUSCATE + " --strength snr=nan", ["'snr'", "finite"]),
    "strength of another kind": (OBFUSCATE + " --strength epsilon=1", ["gaussian", "'epsilon'"]),
    "strength beyond all numbers": (OBFUSCATE + " --strength snr=-9000", ["strength", "snr"]),
    "strength beyond single precision": (OBFUSCATE + " --strength snr=-1000", ["strength", "snr"]),
    "strength without value": (OBFUSCATE + " --strength snr", ["'snr'", "name=value"]),
    "seed of noise below zero": (OBFUSCATE + " --seed -1", ["seed", "-1"]),
    "obfuscation on unknown device": (OBFUSCATE + " --device gpu", ["'gpu'", "cpu, cuda"]),
    "data of another protocol": (
        OBFUSCATE + " --option seed=5",
        ["noise", "simulated", "--option"],
    ),
    "evaluation by another protocol": (EVALUATE + " --option seed=5", ["none", "--option"]),
    "no seeds": (EVALUATE + " --seeds 0", ["--seeds is 0", "at least one"]),
    "a run twice": (EVALUATE + " {none}", ["same fold", "one run per fold"]),
    "runs of different methods": (EVALUATE + " {noise}", ["different methods"]),
}


@pytest.mark.parametrize(("text", "words"), COMMANDS.values(), ids=COMMANDS)
def test_bad_command(
    text: str, words: list[str], refused: Callable[..., str], runs: dict[str, Path]
) -> None:
    line = refused(*shlex.split(text.format(**runs)))
    for word in words:
        assert word in line


def test_epsilon_beyond_all_numbers(
    done: Callable[..., Any], refused: Callable[..., str], tmp_path: Path
) -> None:
    done(*NOISE.split(), "--set", "kind=laplace")
    line = refused(*OBFUSCATE.format(noise="out").split(), "--strength", "epsilon=1e-300")
    assert "'epsilon'" in line


def test_cuda_where_there_is_none(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused(*FIT.split(), "--device", "cuda")
    assert "'cuda'" in line
    assert "--device cpu" in line


# What is wrong in a user's own table.


def _text(name: str, old: str, new: str, count: int = 1) -> Spoil:
    """Other text in one of the files beside the TOML."""

    def spoil(toml: Path) -> None:
        place = toml.parent / name
        text = place.read_text("utf-8")
        assert old in text
        place.write_text(text.replace(old, new, count), "utf-8")

    return spoil


def _toml(old: str, new: str) -> Spoil:
    return _text("walks.toml", old, new)


def _cell(column: int, value: str) -> Spoil:
    """Another value in the third row of the table."""

    def spoil(toml: Path) -> None:
        place = toml.parent / "walks.csv"
        lines = place.read_text("utf-8").splitlines()
        cells = lines[3].split(",")
        cells[column] = value
        place.write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]) + "\n", "utf-8")

    return spoil


def _recoded(encoding: str) -> Spoil:
    def spoil(toml: Path) -> None:
        place = toml.parent / "walks.csv"
        text = place.read_text("utf-8").replace("walk", "größer")
        place.write_bytes(text.encode(encoding))

    return spoil


def _content(name: str, content: bytes) -> Spoil:
    def spoil(toml: Path) -> None:
        (toml.parent / name).write_bytes(content)

    return spoil


def _second_file(toml: Path) -> None:
    """The same recordings in a second file."""
    shutil.copy(toml.parent / "walks.csv", toml.parent / "again.csv")
    _toml('file = "walks.csv"', 'files = ["walks.csv", "again.csv"]')(toml)


def _rows_apart(toml: Path) -> None:
    """A recording's rows again at the end of the table."""
    place = toml.parent / "walks.csv"
    lines = place.read_text("utf-8").splitlines()
    place.write_text("\n".join([*lines, *lines[1:41]]) + "\n", "utf-8")


def _truncated_parquet(toml: Path) -> None:
    import pandas as pd

    place = toml.parent / "walks.parquet"
    pd.read_csv(toml.parent / "walks.csv").to_parquet(place)
    place.write_bytes(place.read_bytes()[:-50])
    _toml("walks.csv", "walks.parquet")(toml)


def _folder_instead(name: str) -> Spoil:
    def spoil(toml: Path) -> None:
        (toml.parent / name).unlink()
        (toml.parent / name).mkdir()

    return spoil


WINDOW_SPLIT = '[splits.mine]\nby = "window"\n\n[window]'
TABLES: dict[str, tuple[Spoil, list[str]]] = {
    "NaN": (_cell(3, "nan"), ["walks.csv", "row 3", "ay", "leave its recording out"]),
    "empty cell": (_cell(3, ""), ["walks.csv", "row 3", "ay is empty", "fill"]),
    "infinity": (_cell(2, "inf"), ["walks.csv", "row 3", "ax is infinite"]),
    "minus infinity": (_cell(2, "-inf"), ["walks.csv", "row 3", "ax is infinite"]),
    "number too large": (_cell(2, "1e39"), ["walks.csv", "row 3", "ax is infinite"]),
    "cell that is no number": (_cell(2, "fast"), ["walks.csv", "row 3", "ax", "'fast'"]),
    "person missing": (_cell(0, ""), ["walks.csv", "row 3", "person is empty"]),
    "too many cells": (_cell(5, "f,1"), ["walks.csv", "line 4"]),
    "UTF-16": (_recoded("utf-16"), ["walks.csv", "UTF-8"]),
    "Latin-1": (_recoded("latin-1"), ["walks.csv", "UTF-8"]),
    "missing column": (
        _text("walks.csv", "ay", "az"),
        ["walks.csv", "lacks the column ay", "person, session, ax, az"],
    ),
    "missing label": (_text("walks.csv", "gender", "sex"), ["walks.csv", "gender", "sex"]),
    "another separator": (
        _text("walks.csv", ",", ";", -1),
        ["walks.csv", "separator = ';'", "walks.toml"],
    ),
    "no rows": (_content("walks.csv", b"person,session,ax,ay,activity,gender\n"), ["no rows"]),
    "empty table": (_content("walks.csv", b""), ["walks.csv", "empty"]),
    "rows apart": (_rows_apart, ["'p0/1'", "row 40", "row 481", "together"]),
    "recordings twice": (_second_file, ["'p0/1'", "walks.csv", "again.csv", "one file"]),
    "no such file": (_toml("walks.csv", "runs.csv"), ["walks.toml", "'runs.csv'"]),
    "truncated Parquet": (_truncated_parquet, ["walks.parquet", "not a whole Parquet"]),
    "recording too short": (
        _toml("length = 8", "length = 41"),
        ["walks.toml", "41 samples", "longest recording has 40", "shorter window"],
    ),
    "negative window": (_toml("length = 8", "length = -8"), ["walks.toml", "-8", "at least 2"]),
    "zero stride": (_toml("stride = 4", "stride = 0"), ["stride 0", "at least 1"]),
    "window in words": (_toml("length = 8", 'length = "8"'), ["'length'", "a number"]),
    "single windows drawn": (
        _toml("[window]", WINDOW_SPLIT),
        ["walks.toml", "'mine'", "overlap", "split by recording or subject"],
    ),
    "unknown kind of split": (
        _toml("[window]", '[splits.mine]\nby = "day"\n\n[window]'),
        ["'day'", "label, recording, subject, window"],
    ),
    "one class in the table": (
        _text("walks.csv", ",m\n", ",f\n", -1),
        ["walks.toml", "'gender'", "one class only, 'f'"],
    ),
    "no rate": (_toml("sample_rate = 50\n", ""), ["walks.toml", "'sample_rate'", "missing"]),
    "rate below zero": (
        _toml("sample_rate = 50", "sample_rate = -50"),
        ["walks.toml", "-50", "above 0"],
    ),
    "unknown entry": (_toml("subject =", "subjct ="), ["walks.toml", "'subjct'", "subject"]),
    "TOML syntax": (_toml('"person"', '"person'), ["walks.toml", "not TOML", "line 3"]),
    "TOML in UTF-16": (
        _content("walks.toml", "file = 'walks.csv'".encode("utf-16")),
        ["walks.toml", "UTF-8"],
    ),
    "TOML is a folder": (_folder_instead("walks.toml"), ["walks.toml", "folder"]),
    "table is a folder": (_folder_instead("walks.csv"), ["walks.csv"]),
}


@pytest.mark.parametrize(("spoil", "words"), TABLES.values(), ids=TABLES)
def test_bad_table(
    spoil: Spoil, words: list[str], refused: Callable[..., str], table: Path
) -> None:
    spoil(table)
    policy = ("--keep", "activity", "--hide", "gender")
    line = refused("fit", "none", "--data", table, *policy, "--out", "out")
    for word in words:
        assert word in line


def _unchanged(toml: Path) -> None:
    """The table as it is: what the bad ones differ from."""


def _marked(*names: str) -> Spoil:
    """A byte-order mark before each of these files, as some editors leave it."""

    def spoil(toml: Path) -> None:
        for name in names:
            place = toml.parent / name
            place.write_bytes(b"\xef\xbb\xbf" + place.read_bytes())

    return spoil


@pytest.mark.parametrize(
    "change",
    [_unchanged, _marked("walks.csv"), _marked("walks.toml"), _marked("walks.csv", "walks.toml")],
    ids=["as it is", "mark before the table", "mark before the TOML", "mark before both"],
)
def test_good_table_is_read(change: Spoil, done: Callable[..., Any], table: Path) -> None:
    change(table)
    policy = ("--keep", "activity", "--hide", "gender")
    outcome = done("fit", "none", "--data", table, *policy, "--out", "out", "--json")
    # A quarter of the 12 recordings is the test, and each has 9 windows.
    assert json.loads(outcome.out)["metrics"]["windows"] == 81


def test_run_of_other_channels(
    refused: Callable[..., str], runs: dict[str, Path], table: Path
) -> None:
    line = refused("obfuscate", runs["noise"], "--data", "watch", "--out", "out.npz")
    assert "(6, 128)" in line
    assert "(3, 128)" in line
    assert "angular velocity" in line
    assert "simulated" in refused("obfuscate", runs["noise"], "--data", table, "--out", "out.npz")


def test_run_on_a_table_wants_the_table(
    done: Callable[..., Any], refused: Callable[..., str], table: Path
) -> None:
    policy = ("--keep", "activity", "--hide", "gender")
    done("fit", "none", "--data", table, *policy, "--out", "run")
    # The run knows the table's name but not its place, so the command has to ask for it.
    assert "--data" in refused("obfuscate", "run", "--out", "out.npz")
    table.write_text(table.read_text("utf-8").replace("length = 8", "length = 10"), "utf-8")
    assert "protocol" in refused("obfuscate", "run", "--data", table, "--out", "out.npz")


def test_class_in_brackets_is_shown_as_it_is(done: Callable[..., Any], table: Path) -> None:
    _text("walks.csv", "walk", "[/walk]", -1)(table)
    _text("walks.csv", "rest", "[red]", -1)(table)
    shown = done("data", "info", table).out
    assert "[/walk]" in shown
    assert "[red]" in shown


# What is wrong in a downloaded dataset.


def _zipped(folder: Path) -> Path:
    """The folder with the zip that the authors offer instead of its content."""
    place = folder / "A_DeviceMotion_data.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("sub_*.csv")):
            archive.write(path, path.relative_to(folder))
    shutil.rmtree(folder / "A_DeviceMotion_data")
    return place


def _truncated_zip(folder: Path) -> None:
    place = _zipped(folder)
    place.write_bytes(place.read_bytes()[: place.stat().st_size // 2])


def _no_zip(folder: Path) -> None:
    _zipped(folder).write_bytes(b"<html>Not found</html>")


def _damaged_zip(folder: Path) -> None:
    """A byte turned over in the middle of the first file, where only its checksum can tell."""
    place = _zipped(folder)
    content = bytearray(place.read_bytes())
    content[5000] ^= 0xFF
    place.write_bytes(bytes(content))


def _zip_of_nothing(folder: Path) -> None:
    place = _zipped(folder)
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("readme.txt", "nothing")


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _only_people(folder: Path) -> None:
    shutil.rmtree(folder / "A_DeviceMotion_data")


def _twice(folder: Path) -> None:
    shutil.copytree(folder / "A_DeviceMotion_data", folder / "copy")


def _csv(old: str, new: str, encoding: str = "utf-8") -> Spoil:
    """Other text in one person's recording."""
    return _file("A_DeviceMotion_data/jog_9/sub_2.csv", old, new, encoding)


def _people(old: str, new: str, encoding: str = "utf-8") -> Spoil:
    return _file("data_subjects_info.csv", old, new, encoding)


def _file(name: str, old: str, new: str, encoding: str) -> Spoil:
    def spoil(folder: Path) -> None:
        place = folder / name
        text = place.read_text("utf-8")
        assert old in text
        place.write_bytes(text.replace(old, new, 1).encode(encoding))

    return spoil


def _no_rows(folder: Path) -> None:
    place = folder / "A_DeviceMotion_data" / "jog_9" / "sub_2.csv"
    place.write_text(place.read_text("utf-8").splitlines()[0] + "\n", "utf-8")


def _short(folder: Path) -> None:
    for path in folder.rglob("sub_*.csv"):
        path.write_text("\n".join(path.read_text("utf-8").splitlines()[:101]) + "\n", "utf-8")


def _no_people(folder: Path) -> None:
    (folder / "data_subjects_info.csv").unlink()


DOWNLOADS: dict[str, tuple[Spoil, list[str]]] = {
    "truncated zip": (_truncated_zip, ["A_DeviceMotion_data.zip", "download it again"]),
    "zip that is none": (_no_zip, ["A_DeviceMotion_data.zip", "download it again"]),
    "zip with a damaged file": (_damaged_zip, ["A_DeviceMotion_data.zip", "download it again"]),
    "zip of something else": (_zip_of_nothing, ["no recording", "layout"]),
    "empty folder": (_emptied, ["downloads is empty", "download"]),
    "only the people": (_only_people, ["no recording", "layout"]),
    "people missing": (_no_people, ["data_subjects_info.csv", "missing"]),
    "person missing": (_people("2,72", "9,72"), ["sub_2.csv", "person 2"]),
    "person twice": (_people("3,48", "2,48"), ["data_subjects_info.csv", "2"]),
    "gender in words": (_people("28,0", "28,f"), ["data_subjects_info.csv", "gender", "'f'"]),
    "weight in words": (_people("48,161", "ca,161"), ["data_subjects_info.csv", "weight", "'ca'"]),
    "people in UTF-16": (_people("2,", "2,", "utf-16"), ["data_subjects_info.csv", "UTF-8"]),
    "recording in UTF-16": (_csv("1,", "1,", "utf-16"), ["jog_9/sub_2.csv", "UTF-8"]),
    "recording in Latin-1": (_csv("\n0,", "\né,", "latin-1"), ["jog_9/sub_2.csv", "UTF-8"]),
    "recordings twice": (_twice, ["'01-jog-16' appears twice"]),
    "column missing": (
        _csv("gravity.z", "gravity.w"),
        ["jog_9/sub_2.csv", "gravity.z", "gravity.w"],
    ),
    "cell in words": (
        _csv("\n2,", "\n2,0,0,0,x,0,0,0,0,0,0,0,0\n2,"),
        ["jog_9/sub_2.csv", "row 3", "gravity.x", "'x'"],
    ),
    "NaN": (_csv("\n2,", "\n2,0,0,0,nan,0,0,0,0,0,0,0,0\n2,"), ["02-jog-9", "NaN", "repair"]),
    "infinity": (_csv("\n2,", "\n2,0,0,0,inf,0,0,0,0,0,0,0,0\n2,"), ["02-jog-9", "infinite"]),
    "recording cut off": (_csv("\n", '\n"'), ["jog_9/sub_2.csv"]),
    "row cut off": (_csv("\n2,", "\n2,0,0,0,0\n2,"), ["02-jog-9", "NaN", "repair"]),
    "recording without rows": (_no_rows, ["jog_9/sub_2.csv", "no rows"]),
}


@pytest.mark.parametrize(("spoil", "words"), DOWNLOADS.values(), ids=DOWNLOADS)
def test_bad_download(
    spoil: Spoil, words: list[str], refused: Callable[..., str], motionsense: Path
) -> None:
    spoil(motionsense)
    line = refused("data", "prepare", "motionsense", "--from", motionsense)
    for word in words:
        assert word in line


def test_recordings_shorter_than_a_window(refused: Callable[..., str], motionsense: Path) -> None:
    _short(motionsense)
    policy = ("--keep", "activity", "--hide", "gender", "--out", "out")
    line = refused("fit", "none", "--data", "motionsense", "--from", motionsense, *policy)
    assert "128 samples" in line
    assert "longest has 100" in line


@pytest.mark.parametrize("name", ["data_subjects_info.csv", "A_DeviceMotion_data/jog_9/sub_2.csv"])
def test_download_with_a_byte_order_mark_is_read(
    name: str, done: Callable[..., Any], motionsense: Path
) -> None:
    place = motionsense / name
    place.write_bytes(b"\xef\xbb\xbf" + place.read_bytes())
    done("data", "prepare", "motionsense", "--from", motionsense)


def test_prepared_form_that_is_damaged(
    done: Callable[..., Any], refused: Callable[..., str], motionsense: Path, tmp_path: Path
) -> None:
    done("data", "prepare", "motionsense", "--from", motionsense)
    place = tmp_path / "datasets" / "motionsense" / "prepared.safetensors"
    place.write_bytes(place.read_bytes()[:-100])
    line = refused("data", "info", "motionsense", "--json")
    assert "prepared.safetensors" in line
    assert "prepare it again" in line


# What is wrong with a run folder.


def _removed(name: str) -> Spoil:
    return lambda run: (run / name).unlink()


def _written(name: str, content: bytes) -> Spoil:
    def spoil(run: Path) -> None:
        (run / name).write_bytes(content)

    return spoil


def _cut(name: str, left: int) -> Spoil:
    def spoil(run: Path) -> None:
        (run / name).write_bytes((run / name).read_bytes()[:left])

    return spoil


def _config(**changes: Any) -> Spoil:
    def spoil(run: Path) -> None:
        place = run / "config.json"
        place.write_text(json.dumps({**json.loads(place.read_text("utf-8")), **changes}), "utf-8")

    return spoil


def _without(entry: str) -> Spoil:
    def spoil(run: Path) -> None:
        content = json.loads((run / "config.json").read_text("utf-8"))
        del content[entry]
        (run / "config.json").write_text(json.dumps(content), "utf-8")

    return spoil


def _arrays(change: Callable[[dict[str, np.ndarray]], object]) -> Spoil:
    """Other arrays in the model file."""

    def spoil(run: Path) -> None:
        arrays = load_file(run / "model.safetensors")
        change(arrays)
        save_file(arrays, run / "model.safetensors")

    return spoil


def _folder(name: str) -> Spoil:
    def spoil(run: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return spoil


SETTINGS = {"width": 4, "epochs": 1, "batch": 64, "rate": 0.004}
RUNS: dict[str, tuple[Spoil, list[str]]] = {
    **{
        f"without {name}": (_removed(name), ["run", f"{name} is missing"])
        for name in ("config.json", "model.safetensors", "card.md", "metrics.json")
    },
    "with a foreign file": (_written("notes.txt", b"hello"), ["'notes.txt'", "take it out"]),
    "damaged model": (_cut("model.safetensors", 500), ["model.safetensors", "not a whole"]),
    "empty model": (_cut("model.safetensors", 0), ["model.safetensors", "not a whole"]),
    "config that is no JSON": (_cut("config.json", 100), ["config.json", "not JSON"]),
    "config in UTF-16": (_written("config.json", b"\xff\xfe{\0}\0"), ["config.json", "not JSON"]),
    "config that is a list": (_written("config.json", b"[1]"), ["run", "damaged"]),
    "config that is a folder": (_folder("config.json"), ["config.json"]),
    "model that is a folder": (_folder("model.safetensors"), ["model.safetensors"]),
    "metrics that are no JSON": (_cut("metrics.json", 9), ["metrics.json", "not JSON"]),
    "unknown method": (_config(method="cloack"), ["'cloack'", "noise, none, obscurenet"]),
    "method that is none": (_config(method=["noise"]), ["run", "damaged"]),
    "unknown format": (_config(format=99), ["run", "format 99", "reads 1"]),
    "unknown setting": (_config(settings={"depth": 3}), ["'depth'", "epochs"]),
    "unknown preset": (_config(preset="slow"), ["'slow'", "fast"]),
    "no policy": (_without("keep"), ["run", "'keep'"]),
    "no origin": (_without("origin"), ["run", "'origin'"]),
    "origin of other entries": (_config(origin={"place": "x"}), ["run", "damaged", "place"]),
    "rate in words": (_config(rate="fast"), ["run", "damaged", "fast"]),
    "shape in words": (_config(shape=["a", "b"]), ["run", "damaged"]),
    "shape of nothing": (_config(shape=[]), ["run", "damaged"]),
    "width of another network": (_config(settings={**SETTINGS, "width": 8}), ["run", "damaged"]),
    "width in words": (_config(settings={**SETTINGS, "width": "wide"}), ["run"]),
    "no scaling": (_arrays(lambda arrays: arrays.pop("scaling.mean")), ["run", "scaling.mean"]),
    "no pool": (_arrays(lambda arrays: arrays.pop("method.pool.store")), ["pool.store"]),
    "no weights": (
        _arrays(lambda arrays: arrays.pop("method.reader.0.net.head.0.weight")),
        ["head.0.weight"],
    ),
    "no scaling of the reader": (
        _arrays(lambda arrays: arrays.pop("method.reader.0.mean")),
        ["mean"],
    ),
    "half a complex array": (
        _arrays(lambda arrays: arrays.update({"method.x.re": np.zeros(3, np.float32)})),
        ["model.safetensors"],
    ),
}


@pytest.mark.parametrize(("spoil", "words"), RUNS.values(), ids=RUNS)
def test_bad_run(
    spoil: Spoil,
    words: list[str],
    refused: Callable[..., str],
    runs: dict[str, Path],
    tmp_path: Path,
) -> None:
    shutil.copytree(runs["resample"], tmp_path / "run")
    spoil(tmp_path / "run")
    line = refused("obfuscate", "run", "--out", "out.npz", *SIMULATED.split())
    for word in words:
        assert word in line


def test_copied_run_is_read(
    done: Callable[..., Any], runs: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(runs["resample"], tmp_path / "run")
    done("obfuscate", "run", "--out", "out.npz", *SIMULATED.split())


def test_run_that_is_a_file(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    line = refused("obfuscate", "run", "--out", "out.npz")
    assert "run is no run folder" in line
    assert "sensorveil fit" in line


# What is wrong with the place to write to.


@pytest.mark.parametrize("content", ["file", "folder", "full folder"])
def test_fit_does_not_overwrite(content: str, refused: Callable[..., str], tmp_path: Path) -> None:
    place = tmp_path / "out"
    if content == "file":
        place.write_text("mine")
    else:
        place.mkdir()
    if content == "full folder":
        (place / "mine").write_text("mine")
    line = refused(*FIT.split())
    assert "out exists already" in line
    assert "choose another place" in line


@pytest.mark.parametrize(
    "text",
    [
        FIT + " --out wall/run",
        OBFUSCATE + " --out wall/out.npz",
        EVALUATE + " --attribute gender --out wall/out.json",
        "data prepare motionsense --from downloads --to wall/prepared.safetensors",
    ],
    ids=["fit", "obfuscate", "evaluate", "prepare"],
)
def test_place_below_a_file(
    text: str,
    refused: Callable[..., str],
    runs: dict[str, Path],
    tmp_path: Path,
    motionsense: Path,
) -> None:
    # Even root, who may write anywhere, cannot write there.
    (tmp_path / "wall").write_text("a file, and no folder")
    line = refused(*shlex.split(text.format(**runs)))
    assert "cannot write to" in line
    assert "wall" in line


def test_bad_place_is_refused_before_the_work(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who trained for hours shall not learn only then that the result has no place."""

    def work(*_: object) -> None:
        pytest.fail("the work began")

    monkeypatch.setattr(NoObfuscation, "_fit", work)
    (tmp_path / "wall").write_text("a file, and no folder")
    assert "wall" in refused(*FIT.split(), "--out", "wall/run")


def test_bad_place_is_refused_before_the_scoring(
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    runs: dict[str, Path],
    tmp_path: Path,
) -> None:
    def work(*_: object) -> None:
        pytest.fail("the work began")

    monkeypatch.setattr(Classifier, "fit", work)
    (tmp_path / "wall").write_text("a file, and no folder")
    line = refused(*shlex.split(EVALUATE.format(**runs)), "--out", "wall/out.json")
    assert "wall" in line


@pytest.mark.parametrize(
    "text",
    [
        OBFUSCATE,
        EVALUATE + " --attribute gender --out out.json",
    ],
    ids=["obfuscate", "evaluate"],
)
def test_folder_where_a_file_is_to_be(
    text: str, refused: Callable[..., str], runs: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "out.npz").mkdir()
    (tmp_path / "out.json").mkdir()
    assert "is a folder" in refused(*shlex.split(text.format(**runs)))


@pytest.mark.parametrize("out", ["/proc/none/run", f"{'a' * 300}/run"])
def test_place_that_cannot_be_made(out: str, refused: Callable[..., str]) -> None:
    # Not even root can write there, though the permissions of /proc say so.
    line = refused(*FIT.split(), "--out", out)
    assert "cannot write to" in line
    assert "choose another place" in line


@pytest.mark.parametrize("content", ["file", "folder"])
def test_demo_does_not_overwrite_what_is_no_demo(
    content: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    place = tmp_path / "mine"
    if content == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "thesis.txt").write_text("mine")
    line = refused("demo", "--out", "mine")
    wanted = {"file": "mine exists already", "folder": "mine holds 'thesis.txt'"}
    assert wanted[content] in line
    assert "--out" in line


# What is no refusal.


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        (FIT + " --folds 3", "--folds"),
        ("fit --keep activity --hide gender --out out", "METHOD"),
        ("fit none --keep activity --hide gender", "--out"),
        ("data prepare motionsense", "--from"),
        (FIT + " --fold first", "'first'"),
        (EVALUATE + " --seeds two", "'two'"),
        ("fitt none", "fitt"),
    ],
)
def test_usage_errors_name_the_culprit(
    text: str,
    culprit: str,
    command: Callable[..., Any],
    runs: dict[str, Path],
    tmp_path: Path,
) -> None:
    # The command's parser finds these before we see them, and prints them in its own way.
    outcome = command(*shlex.split(text.format(**runs)))
    assert outcome.code == 2
    assert outcome.out == ""
    assert culprit in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.iterdir())


def test_interrupt_leaves_nothing(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NoObfuscation, "_fit", interrupt)
    outcome = command(*FIT.split())
    assert outcome.err.strip() == "sensorveil: stopped"
    assert outcome.code == 130
    assert not list(tmp_path.iterdir())


def test_fault_of_the_program_keeps_its_traceback(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(NoObfuscation, "_fit", fault)
    with pytest.raises(ZeroDivisionError):
        command(*FIT.split())
    assert not list(tmp_path.iterdir())


def test_refusal_from_a_shell(tmp_path: Path) -> None:
    arguments = ["fit", "none", "--keep", "excercise", "--hide", "side", "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-m", "sensorveil.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    known = "exercise, side, subject"
    assert done.stderr == f"sensorveil: attribute 'excercise' is unknown; known: {known}\n"
    assert not list(tmp_path.iterdir())
