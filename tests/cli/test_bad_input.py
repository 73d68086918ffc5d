"""Bad input through the real commands: one line that helps, exit code 2, and nothing written."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file

from sensorveil.classifiers import Classifier
from sensorveil.methods.baselines import NoObfuscation

SIMULATED = "--data simulated --option people=8,recordings=1,windows=3"
POLICY = "--keep activity --hide gender --out out"
FIT, NOISE, DOWNSAMPLE, RESAMPLE = (
    f"fit {name} {POLICY} {SIMULATED}" for name in ("none", "noise", "downsample", "resample")
)
OBFUSCATE = f"obfuscate {{noise}} --out out.npz {SIMULATED}"
EVALUATE = f"evaluate {{none}} --quick --out out.json {SIMULATED}"
ATTRIBUTES = "activity, gender, subject, weight"

# A command that is good, what makes it bad, and the parts that its line must have.
BAD = {
    FIT: {
        "--data motionsens": "'motionsens'|motionsense, simulated",
        "--data ''": "dataset|motionsense, simulated",
        "--split people": "'people'|recording, subject",
        "--fold 4": "fold 4|'subject'|0 to 3",
        "--fold -1": "fold -1|0 to 3",
        "--split recording --fold 1": "'recording' has no folds",
        "--keep exercise": f"'exercise'|{ATTRIBUTES}",
        "--hide gendr": f"'gendr'|{ATTRIBUTES}",
        "--option male=0": "'gender' has 1 class|nothing to",
        "--hide activity": "'activity'|kept and hidden",
        "--keep activity": "twice|activity",
        "--hide weight,weight": "twice|weight",
        "--preset slow": "'slow'|known: fast",
        "--set snr=3": "setting of none 'snr'|known: none",
        "--subset test": "subset 'test'|fitting, train",
        "--device tpu": "'tpu'|cpu, cuda",
        "--seed -1": "seed|-1",
        "--data watch": "watch takes no options|people",
        "--option persons=3": "'persons'|people|windows",
        "--option gender=-1": "'gender' is -1|0 to 10",
        "--option gender=big": "'gender'|'big'|0 to 10",
        "--option seed=1.5": "'seed' is 1.5|whole number",
        "--option male": "'male'|name=value",
        "--option fold=1": "'fold'|people",
        "--option name=x": "'name'|people",
        "--from here": "simulated|--from",
    },
    NOISE: {
        "--set snr=nan": "snr",
        "--set kind=pink": "pink|'gaussian' or 'laplace'",
        "--set kind=laplace,clip=0": "clip|greater than 0",
    },
    DOWNSAMPLE: {"--set factor=0.5": "factor|equal to 1", "--set factor=nan": "factor"},
    RESAMPLE: {
        "--set epoch=3": "'epoch'|classifier.epochs, classifier.learning_rate",
        "--set epochs=many": "epochs'|many",
        "--set epochs=1.5": "epochs'|1.5",
        "--set epochs=inf": "epochs'|inf",
        "--set epochs=nan": "epochs'|nan",
        "--set epochs=-1": "epochs'|-1",
        "--set batch_size=0": "batch_size'|0",
        "--set width=0": "width'|0",
        "--set learning_rate=nan": "learning_rate'|nan",
        "--set epochs": "'epochs'|name=value",
        "--set =3": "'=3'|name=value",
        "--set epochs=1 --set epochs=2": "'epochs'|twice",
    },
    OBFUSCATE: {
        "--out out.csv": "out.csv|.npz",
        "--subset half": "'half'|all, test, train, validation",
        "--strength snt=3": "'snt'|epsilon, snr",
        "--strength snr=low": "'snr'|'low'",
        "--strength snr=nan": "'snr'|finite",
        "--strength epsilon=1": "gaussian|'epsilon'",
        "--strength snr=-9000": "strength|snr",  # beyond all numbers
        "--strength snr=-1000": "strength|snr",  # beyond single precision
        "--strength snr": "'snr'|name=value",
        "--seed -1": "seed|-1",
        "--device gpu": "'gpu'|cpu, cuda",
        "--option seed=5": "noise|simulated|--option",  # data of another protocol
    },
    EVALUATE: {
        "--attribute gendr": f"'gendr'|{ATTRIBUTES}",
        "--strength snr=3": "'snr'|known: none",
        "--option seed=5": "none|--option",
        "--seeds 0": "--seeds is 0|at least one",
        "{none}": "same fold|one run per fold",
        "{noise}": "different methods",
    },
    "data": {
        "info nothing": "'nothing'|motionsense",
        "info motionsense --json --from gone": "gone|download",
        "info simulated --option source=x": "'source'|people",
        "prepare nothing --from .": "'nothing'|motionsense",
        "prepare motionsense --from gone": "gone|download",
        "prepare simulated --from .": "simulated|--from",
    },
    "fit": {
        FIT.replace("fit none", "nose"): "'nose'|noise, none, obscurenet",
        f"none --keep , --hide gender --out out {SIMULATED}": "at least one|keep",
        f"none {POLICY} --data motionsense --from gone": "gone|download",
        f"none {POLICY} --data motionsense": "datasets/motionsense|download|--from",
        f"none {POLICY} --data table": "TOML|docs/",
        f"none {POLICY} --data gone.toml": "gone.toml",
    },
    "obfuscate": {
        "gone --out out.npz": "gone|sensorveil fit",
        "{noise} --data watch --out out.npz": "(6, 128)|(3, 128)|angular velocity",
    },
}
CASES = [(base, more, words) for base, cases in BAD.items() for more, words in cases.items()]


def assert_says(line, words):
    for word in words.split("|"):
        assert word in line


@pytest.mark.parametrize(
    ("base", "more", "words"),
    CASES,
    ids=[f"{base.split(' --')[0]} {more}" for base, more, _ in CASES],
)
def test_bad_command(base, more, words, refused, runs):
    assert_says(refused(*shlex.split(f"{base} {more}".format(**runs))), words)


def test_epsilon_beyond_all_numbers(done, refused):
    done(*NOISE.split(), "--set", "kind=laplace")
    line = refused(*OBFUSCATE.format(noise="out").split(), "--strength", "epsilon=1e-300")
    assert "'epsilon'" in line


def test_cuda_where_there_is_none(refused, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_says(refused(*FIT.split(), "--device", "cuda"), "'cuda'|--device cpu")


# What can be wrong in a folder: each of these changes a file in it.


def text(name, old, new, count=1, encoding="utf-8"):
    def spoil(folder):
        content = (folder / name).read_text("utf-8")
        assert old in content
        (folder / name).write_bytes(content.replace(old, new, count).encode(encoding))

    return spoil


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def cut(name, left):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:left])


def removed(name):
    def spoil(folder):
        place = folder / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    return spoil


def folder_instead(name):
    def spoil(folder):
        removed(name)(folder)
        (folder / name).mkdir()

    return spoil


def marked(*names):
    """A byte-order mark before each of these files, as some editors leave it."""

    def change(folder):
        for name in names:
            (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())

    return change


# A user's own table.


def toml(old, new):
    return text("walks.toml", old, new)


def cell(column, value):
    """Another value in the third row of the table."""

    def spoil(folder):
        lines = (folder / "walks.csv").read_text("utf-8").splitlines()
        cells = lines[3].split(",")
        cells[column] = value
        lines[3] = ",".join(cells)
        (folder / "walks.csv").write_text("\n".join(lines) + "\n", "utf-8")

    return spoil


def second_file(folder):
    shutil.copy(folder / "walks.csv", folder / "again.csv")
    toml('file = "walks.csv"', 'files = ["walks.csv", "again.csv"]')(folder)


def rows_apart(folder):
    lines = (folder / "walks.csv").read_text("utf-8").splitlines()
    (folder / "walks.csv").write_text("\n".join([*lines, *lines[1:41]]) + "\n", "utf-8")


def truncated_parquet(folder):
    pd.read_csv(folder / "walks.csv").to_parquet(folder / "walks.parquet")
    cut("walks.parquet", -50)(folder)
    toml("walks.csv", "walks.parquet")(folder)


HEADER = b"person,session,ax,ay,activity,gender\n"
SPLIT = '[splits.mine]\nby = "{}"\n\n[window]'
TABLES = {
    "NaN": (cell(3, "nan"), "walks.csv|row 3|ay|leave its recording out"),
    "empty cell": (cell(3, ""), "walks.csv|row 3|ay is empty|fill"),
    "infinity": (cell(2, "inf"), "walks.csv|row 3|ax is infinite"),
    "number too large": (cell(2, "1e39"), "walks.csv|row 3|ax is infinite"),
    "cell that is no number": (cell(2, "fast"), "walks.csv|row 3|ax|'fast'"),
    "person missing": (cell(0, ""), "walks.csv|row 3|person is empty"),
    "too many cells": (cell(5, "f,1"), "walks.csv|line 4"),
    "UTF-16": (text("walks.csv", "walk", "größer", -1, "utf-16"), "walks.csv|UTF-8"),
    "Latin-1": (text("walks.csv", "walk", "größer", -1, "latin-1"), "walks.csv|UTF-8"),
    "missing column": (
        text("walks.csv", "ay", "az"),
        "walks.csv|lacks the column ay|person, session, ax, az",
    ),
    "missing label": (text("walks.csv", "gender", "sex"), "walks.csv|gender|sex"),
    "separator": (text("walks.csv", ",", ";", -1), "walks.csv|separator = ';'|walks.toml"),
    "no rows": (written("walks.csv", HEADER), "no rows"),
    "empty table": (written("walks.csv", b""), "walks.csv|empty"),
    "rows apart": (rows_apart, "'p0/1'|row 40|row 481|together"),
    "recordings twice": (second_file, "'p0/1'|walks.csv|again.csv|one file"),
    "no such file": (toml("walks.csv", "runs.csv"), "walks.toml|'runs.csv'"),
    "truncated Parquet": (truncated_parquet, "walks.parquet|not a whole Parquet"),
    "recording too short": (
        toml("length = 8", "length = 41"),
        "walks.toml|41 samples|longest recording has 40|shorter window",
    ),
    "negative window": (toml("length = 8", "length = -8"), "walks.toml|-8|at least 2"),
    "zero stride": (toml("stride = 4", "stride = 0"), "stride 0|at least 1"),
    "window in words": (toml("length = 8", 'length = "8"'), "'length'|a number"),
    "single windows drawn": (
        toml("[window]", SPLIT.format("window")),
        "walks.toml|'mine'|overlap|split by recording or subject",
    ),
    "unknown split": (toml("[window]", SPLIT.format("day")), "'day'|label, recording, subject"),
    "one class": (text("walks.csv", ",m\n", ",f\n", -1), "'gender'|one class only, 'f'"),
    "no rate": (toml("sample_rate = 50\n", ""), "walks.toml|'sample_rate'|missing"),
    "rate below zero": (toml("rate = 50", "rate = -50"), "walks.toml|-50|above 0"),
    "unknown entry": (toml("subject =", "subjct ="), "walks.toml|'subjct'|subject"),
    "TOML syntax": (toml('"person"', '"person'), "walks.toml|not TOML|line 3"),
    "TOML in UTF-16": (text("walks.toml", "f", "f", 1, "utf-16"), "walks.toml|UTF-8"),
    "TOML is a folder": (folder_instead("walks.toml"), "walks.toml|folder"),
    "table is a folder": (folder_instead("walks.csv"), "walks.csv"),
}


@pytest.mark.parametrize(("spoil", "words"), TABLES.values(), ids=TABLES)
def test_bad_table(spoil, words, refused, table):
    spoil(table.parent)
    assert_says(refused("fit", "none", "--data", table, *POLICY.split()), words)


@pytest.mark.parametrize("names", [(), ("walks.csv",), ("walks.csv", "walks.toml")], ids=str)
def test_good_table_is_loaded(names, done, table):
    marked(*names)(table.parent)
    outcome = done("fit", "none", "--data", table, *POLICY.split(), "--json")
    # A quarter of the 12 recordings is the test, and each has 9 windows.
    assert json.loads(outcome.out)["metrics"]["windows"] == 81


def test_run_on_a_table_wants_the_table(done, refused, runs, table):
    assert "simulated" in refused("obfuscate", runs["noise"], "--data", table, "--out", "out.npz")
    done("fit", "none", "--data", table, *POLICY.split())
    # The run knows the table's name but not its place, so the command has to ask for it.
    assert "--data" in refused("obfuscate", "out", "--out", "out.npz")
    toml("length = 8", "length = 10")(table.parent)
    assert "protocol" in refused("obfuscate", "out", "--data", table, "--out", "out.npz")


def test_class_in_brackets_is_shown_as_it_is(done, table):
    for old, new in (("walk", "[/walk]"), ("rest", "[red]")):
        text("walks.csv", old, new, -1)(table.parent)
    assert_says(done("data", "info", table).out, "[/walk]|[red]")


# A downloaded dataset.

RECORDINGS, ZIP = "A_DeviceMotion_data", "A_DeviceMotion_data.zip"
PEOPLE, CSV = "data_subjects_info.csv", "A_DeviceMotion_data/jog_9/sub_2.csv"
ROW = "\n2,0,0,0,{},0,0,0,0,0,0,0,0\n2,"


def zipped(spoil):
    """The zip that the authors offer instead of the folder, spoilt."""

    def zip_and_spoil(folder):
        with zipfile.ZipFile(folder / ZIP, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("sub_*.csv")):
                archive.write(path, path.relative_to(folder))
        removed(RECORDINGS)(folder)
        spoil(folder)

    return zip_and_spoil


def damaged(folder):
    """A byte turned over in the middle of the first file, where only its checksum can tell."""
    content = bytearray((folder / ZIP).read_bytes())
    content[5000] ^= 0xFF
    (folder / ZIP).write_bytes(bytes(content))


def of_something_else(folder):
    with zipfile.ZipFile(folder / ZIP, "w") as archive:
        archive.writestr("readme.txt", "nothing")


def emptied(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def twice(folder):
    shutil.copytree(folder / RECORDINGS, folder / "copy")


def without_rows(folder):
    (folder / CSV).write_text((folder / CSV).read_text("utf-8").splitlines()[0] + "\n", "utf-8")


DOWNLOADS = {
    "truncated zip": (zipped(cut(ZIP, 9000)), f"{ZIP}|download it again"),
    "zip that is none": (zipped(written(ZIP, b"<html>")), f"{ZIP}|download it again"),
    "zip with a damaged file": (zipped(damaged), f"{ZIP}|download it again"),
    "zip of something else": (zipped(of_something_else), "no recording|layout"),
    "empty folder": (emptied, "downloads is empty|download"),
    "only the people": (removed(RECORDINGS), "no recording|layout"),
    "people missing": (removed(PEOPLE), f"{PEOPLE}|missing"),
    "person missing": (text(PEOPLE, "2,72", "9,72"), "sub_2.csv|person 2"),
    "person twice": (text(PEOPLE, "3,48", "2,48"), f"{PEOPLE}|2"),
    "gender in words": (text(PEOPLE, "28,0", "28,f"), f"{PEOPLE}|gender|'f'"),
    "weight in words": (text(PEOPLE, "48,161", "ca,161"), f"{PEOPLE}|weight|'ca'"),
    "people in UTF-16": (text(PEOPLE, "2,", "2,", 1, "utf-16"), f"{PEOPLE}|UTF-8"),
    "recording in UTF-16": (text(CSV, "1,", "1,", 1, "utf-16"), "jog_9/sub_2.csv|UTF-8"),
    "recording in Latin-1": (text(CSV, "\n0,", "\né,", 1, "latin-1"), "jog_9/sub_2.csv|UTF-8"),
    "recordings twice": (twice, "'01-jog-16' appears twice"),
    "column missing": (text(CSV, "gravity.z", "gravity.w"), "sub_2.csv|gravity.z|gravity.w"),
    "cell in words": (text(CSV, "\n2,", ROW.format("x")), "sub_2.csv|row 3|gravity.x|'x'"),
    "NaN": (text(CSV, "\n2,", ROW.format("nan")), "02-jog-9|NaN|repair"),
    "infinity": (text(CSV, "\n2,", ROW.format("inf")), "02-jog-9|infinite"),
    "recording cut off": (text(CSV, "\n", '\n"'), "jog_9/sub_2.csv"),
    "row cut off": (text(CSV, "\n2,", "\n2,0,0,0,0\n2,"), "02-jog-9|NaN|repair"),
    "recording without rows": (without_rows, "jog_9/sub_2.csv|no rows"),
}


@pytest.mark.parametrize(("spoil", "words"), DOWNLOADS.values(), ids=DOWNLOADS)
def test_bad_download(spoil, words, refused, motionsense):
    spoil(motionsense)
    assert_says(refused("data", "prepare", "motionsense", "--from", motionsense), words)


def test_recordings_shorter_than_a_window(refused, motionsense):
    for path in motionsense.rglob("sub_*.csv"):
        path.write_text("\n".join(path.read_text("utf-8").splitlines()[:101]) + "\n", "utf-8")
    place = ("--data", "motionsense", "--from", motionsense)
    assert_says(refused("fit", "none", *place, *POLICY.split()), "128 samples|longest has 100")


@pytest.mark.parametrize("name", [PEOPLE, CSV])
def test_download_with_a_byte_order_mark_is_loaded(name, done, motionsense):
    marked(name)(motionsense)
    done("data", "prepare", "motionsense", "--from", motionsense)


def test_prepared_form_that_is_damaged(done, refused, motionsense, tmp_path):
    done("data", "prepare", "motionsense", "--from", motionsense)
    cut("prepared.safetensors", -100)(tmp_path / "datasets" / "motionsense")
    line = refused("data", "info", "motionsense", "--json")
    assert_says(line, "prepared.safetensors|prepare it again")


# A run folder.

CONFIG, MODEL = "config.json", "model.safetensors"


def config(**changes):
    """Other entries in config.json; None takes one out."""

    def spoil(run):
        content = {**json.loads((run / CONFIG).read_text("utf-8")), **changes}
        content = {name: value for name, value in content.items() if value is not None}
        (run / CONFIG).write_text(json.dumps(content), "utf-8")

    return spoil


def arrays(**changes):
    """Other arrays in the model file; None takes one out."""

    def spoil(run):
        content = {**load_file(run / MODEL), **changes}
        content = {name: value for name, value in content.items() if value is not None}
        save_file(content, run / MODEL)

    return spoil


WEIGHTS, MEAN = "method.classifier.0.network.head.0.weight", "method.classifier.0.mean"
RUNS = {
    **{
        f"without {name}": (removed(name), f"run|{name} is missing")
        for name in (CONFIG, MODEL, "card.md", "metrics.json")
    },
    "with a foreign file": (written("notes.txt", b"hello"), "'notes.txt'|take it out"),
    "damaged model": (cut(MODEL, 500), f"{MODEL}|not a whole"),
    "empty model": (cut(MODEL, 0), f"{MODEL}|not a whole"),
    "config that is no JSON": (cut(CONFIG, 100), f"{CONFIG}|not JSON"),
    "config in UTF-16": (written(CONFIG, b"\xff\xfe{\0}\0"), f"{CONFIG}|not JSON"),
    "config that is a list": (written(CONFIG, b"[1]"), "run|damaged"),
    "config that is a folder": (folder_instead(CONFIG), CONFIG),
    "model that is a folder": (folder_instead(MODEL), MODEL),
    "metrics that are no JSON": (cut("metrics.json", 9), "metrics.json|not JSON"),
    "unknown method": (config(method="cloack"), "'cloack'|noise, none, obscurenet"),
    "method that is none": (config(method=["noise"]), "run|damaged"),
    "unknown format": (config(format=99), "run|format 99|reads 1"),
    "unknown setting": (config(settings={"depth": 3}), "'depth'|epochs"),
    "unknown preset": (config(preset="slow"), "'slow'|fast"),
    "no policy": (config(keep=None), "run|'keep'"),
    "no shape": (config(shape=None), "run|'shape'"),
    "origin of other entries": (config(origin={"place": "x"}), "run|damaged|place"),
    "rate in words": (config(rate="fast"), "run|damaged|fast"),
    "shape in words": (config(shape=["a", "b"]), "run|damaged"),
    "shape of nothing": (config(shape=[]), "run|damaged"),
    "width of another network": (config(settings={"classifier.width": 8}), "run|damaged"),
    "width in words": (config(settings={"classifier.width": "wide"}), "width|wide"),
    "no scaling": (arrays(**{"scaling.mean": None}), "run|scaling.mean"),
    "no donors": (arrays(**{"method.donors.store": None}), "donors.store"),
    "no weights": (arrays(**{WEIGHTS: None}), "head.0.weight"),
    "no scaling of the classifier": (arrays(**{MEAN: None}), "mean"),
    "half a complex array": (arrays(**{"method.x.re": np.zeros(3, np.float32)}), MODEL),
}


@pytest.mark.parametrize(("spoil", "words"), RUNS.values(), ids=RUNS)
def test_bad_run(spoil, words, refused, runs, tmp_path):
    shutil.copytree(runs["resample"], tmp_path / "run")
    spoil(tmp_path / "run")
    assert_says(refused("obfuscate", "run", "--out", "out.npz", *SIMULATED.split()), words)


def test_copied_run_is_loaded(done, runs, tmp_path):
    shutil.copytree(runs["resample"], tmp_path / "run")
    done("obfuscate", "run", "--out", "out.npz", *SIMULATED.split())


def test_run_that_is_a_file(refused, tmp_path):
    (tmp_path / "run").write_text("no folder")
    assert_says(
        refused("obfuscate", "run", "--out", "o.npz"), "run is no run folder|sensorveil fit"
    )


def test_training_that_another_command_began_is_not_continued(refused, tmp_path):
    (tmp_path / "out.unfinished").mkdir()
    (tmp_path / "out.unfinished" / "purpose.json").write_text("{}", "utf-8")
    assert "another training" in refused(*FIT.split())


# The place to write to.


@pytest.fixture
def no_work(monkeypatch):
    """A place is refused before the work that would be lost."""
    for kind, name in ((NoObfuscation, "_fit"), (Classifier, "fit_codes")):
        monkeypatch.setattr(kind, name, lambda *_: pytest.fail("the work began"))


@pytest.mark.parametrize("files", [None, [], ["mine"]], ids=["file", "folder", "full folder"])
def test_fit_does_not_overwrite(files, refused, tmp_path, no_work):
    if files is None:
        (tmp_path / "out").write_text("mine")
    else:
        (tmp_path / "out").mkdir()
        for name in files:
            (tmp_path / "out" / name).write_text("mine")
    assert_says(refused(*FIT.split()), "out exists already|choose another place")


PREPARE = "data prepare motionsense --from downloads --to wall/prepared.safetensors"
AUDIT = "audit {none} --quick --out wall/audit"
PLACES = {
    f"{FIT} --out wall/run": "cannot write to|wall",  # even root cannot write below a file
    f"{OBFUSCATE} --out wall/out.npz": "cannot write to|wall",
    f"{EVALUATE} --out wall/out.json": "cannot write to|wall",
    AUDIT: "cannot write to|wall",
    PREPARE: "cannot write to|wall",
    f"{OBFUSCATE} --out folder.npz": "is a folder",
    f"{EVALUATE} --out folder.json": "is a folder",
    f"{FIT} --out /proc/none/run": "cannot write to|choose another place",
    f"{FIT} --out {'a' * 300}/run": "cannot write to|choose another place",
    "demo --out wall": "wall exists already|--out",
    "demo --out full": "full holds 'thesis.txt'|--out",
}


@pytest.mark.parametrize(("typed", "words"), PLACES.items(), ids=range(len(PLACES)))
def test_bad_place(typed, words, refused, runs, tmp_path, motionsense, no_work):
    (tmp_path / "wall").write_text("a file, and no folder")
    for name in ("folder.npz", "folder.json", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert_says(refused(*shlex.split(typed.format(**runs))), words)


# What is no refusal.


@pytest.mark.parametrize(
    ("typed", "culprit"),
    [
        (f"{FIT} --folds 3", "--folds"),
        ("fit --keep activity --hide gender --out out", "METHOD"),
        ("fit none --keep activity --hide gender", "--out"),
        ("data prepare motionsense", "--from"),
        (f"{FIT} --fold first", "'first'"),
        (f"{EVALUATE} --seeds two", "'two'"),
        ("fitt none", "fitt"),
    ],
)
def test_usage_errors_name_the_culprit(typed, culprit, refused, runs):
    assert_says(refused(*shlex.split(typed.format(**runs))), f"{culprit}|--help")


def test_interrupt_leaves_nothing(command, monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(NoObfuscation, "_fit", interrupt)
    outcome = command(*FIT.split())
    assert (outcome.code, outcome.err.strip()) == (130, "sensorveil: stopped")
    assert not list(tmp_path.iterdir())


def test_fault_of_the_program_keeps_its_traceback(command, monkeypatch, tmp_path):
    def fault(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(NoObfuscation, "_fit", fault)
    with pytest.raises(ZeroDivisionError):
        command(*FIT.split())
    assert not list(tmp_path.iterdir())


def test_refusal_from_a_shell(tmp_path):
    typed = shlex.split("fit none --keep excercise --hide side --out out")
    done = subprocess.run(
        [sys.executable, "-m", "sensorveil.cli.main", *typed],
        capture_output=True,
        text=True,
        check=False,
    )
    line = "sensorveil: attribute 'excercise' is unknown; known: exercise, side, subject\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert not list(tmp_path.iterdir())
