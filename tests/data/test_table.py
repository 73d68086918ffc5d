"""A user's own table: what is read, and that everything wrong is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sensorveil.data.catalog import load
from sensorveil.data.table import Table
from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal

DOCS = Path(__file__).parents[2] / "docs" / "howto" / "table.md"
TOML = """
file = "walks.csv"
subject = "person"
recording = "session"
sample_rate = 50
channels = ["ax", "ay"]
attributes = ["activity"]
[window]
length = 8
stride = 4
"""


def walks(people: int = 4, sessions: int = 3, samples: int = 40) -> pd.DataFrame:
    """Rows whose first channel tells the row's number, so that nothing can be mixed up."""
    rng = np.random.default_rng(0)
    parts = []
    for person in range(people):
        for session in range(1, sessions + 1):
            parts.append(
                pd.DataFrame(
                    {
                        "person": f"p{person}",
                        "session": session,
                        "t": np.arange(samples) / 50,
                        "ax": (person * 100 + session) * 1000 + np.arange(samples),
                        "ay": rng.normal(size=samples),
                        "activity": ["walk", "rest"][(person + session) % 2],
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def written(place: Path, table: pd.DataFrame | None = None, toml: str = TOML) -> Path:
    (walks() if table is None else table).to_csv(place / "walks.csv", index=False)
    (place / "walks.toml").write_text(toml, "utf-8")
    return place / "walks.toml"


def all_windows(path: Path) -> Any:
    made = Table()
    corpus = made.corpus(path)
    rules = made.protocol()
    return corpus.windows(rules.window.length, rules.window.stride)


def refusal(path: Path) -> str:
    with pytest.raises(Refusal) as caught:
        load(str(path))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_windows_are_the_rows_of_the_table(tmp_path: Path) -> None:
    windows = all_windows(written(tmp_path))
    # 40 samples, length 8, stride 4: starts 0, 4, ... 32 are nine windows for each of 12.
    assert len(windows) == 12 * 9
    assert windows.channels == ("ax", "ay")
    assert windows.classes["activity"] == ("rest", "walk")
    assert windows.classes["subject"] == ("p0", "p1", "p2", "p3")
    for row, window in zip(windows.to_frame().itertuples(), windows.signal, strict=True):
        person, session = (int(number) for number in row.recording[1:].split("/"))
        base = (person * 100 + session) * 1000 + row.start
        assert window[0].tolist() == [base + k for k in range(8)]
        assert row.activity == ["walk", "rest"][(person + session) % 2]


def test_both_ways_to_load_and_the_default_splits(tmp_path: Path) -> None:
    path = written(tmp_path)
    one, other = load(str(path)), load("table", source=path)
    assert one.train.origin == other.train.origin
    assert one.train.origin is not None
    assert (one.train.origin.dataset, one.train.origin.split) == ("walks", "recording")
    assert np.array_equal(one.train.signal, other.train.signal)
    assert len(set(one.test.recording)) == 3  # a quarter of 12
    assert set(one.train.recording).isdisjoint(one.test.recording)
    people = load(str(path), "subject", fold=1)
    assert set(people.train.subject).isdisjoint(people.test.subject)


@pytest.mark.parametrize("people", [3, 8])
def test_any_three_people_can_be_split(tmp_path: Path, people: int) -> None:
    path = written(tmp_path, walks(people=people, sessions=1))
    tested = []
    for fold in range(min(5, people)):
        split = load(str(path), "subject", fold=fold)
        parts = [set(part.subject) for part in (split.test, split.validation, split.fitting)]
        assert sum(map(len, parts)) == people == len(set.union(*parts))
        tested += sorted(parts[0])
    assert sorted(tested) == list(range(people))
    with pytest.raises(Refusal, match="known: recording"):
        load(str(written(tmp_path, walks(people=2))), "subject")


def test_digest_follows_the_toml(tmp_path: Path) -> None:
    def digest(toml: str) -> str:
        made = Table()
        made.locate(written(tmp_path, toml=toml))
        return made.protocol().digest

    assert digest("# the same\n" + TOML) == digest(TOML)
    # Even times change no window, but the TOML is another one.
    others = TOML.replace("stride = 4", "stride = 2"), "name = 'b'\n" + TOML, "time = 't'\n" + TOML
    assert len({digest(toml) for toml in (TOML, *others)}) == 4


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(order=st.permutations(range(6)), gaps=st.lists(st.integers(0, 59), max_size=5))
def test_format_and_order_do_not_matter(tmp_path: Path, order: list[int], gaps: list[int]) -> None:
    table = walks(people=2, sessions=3, samples=10)
    table.loc[gaps, "activity"] = None
    straight = all_windows(written(tmp_path, table))
    blocks = [table.iloc[10 * k : 10 * (k + 1)] for k in order]
    pd.concat(blocks, ignore_index=True).to_parquet(tmp_path / "walks.parquet")
    (tmp_path / "other.toml").write_text(TOML.replace("walks.csv", "walks.parquet"))
    shuffled = all_windows(tmp_path / "other.toml")
    assert np.array_equal(straight.signal, shuffled.signal)
    assert straight.recordings == shuffled.recordings
    for name in ("activity", "subject"):
        assert straight.classes[name] == shuffled.classes[name]
        assert np.array_equal(straight.labels[name], shuffled.labels[name])


def test_people_table_bins_and_values(tmp_path: Path) -> None:
    toml = TOML.replace('attributes = ["activity"]', "") + (
        '[people]\nfile = "people.csv"\nkey = "id"\n'
        '[attributes.weight]\nup_to = [70, 90]\n[attributes.age]\nlabel = "years"\nbelow = [40]\n'
        '[attributes.sex]\nvalues = { 1 = "male", 0 = "female" }\n'
    )
    (tmp_path / "people.csv").write_bytes(
        b"\xef\xbb\xbfid,weight,years,sex\np0,70,39,1\np1,70.5,40,0\np2,91,,1\np3,90,12,0\n"
    )
    windows = all_windows(written(tmp_path, toml=toml))
    assert windows.classes["weight"] == ("up to 70", "above 70 to 90", "above 90")
    assert windows.classes["age"] == ("below 40", "from 40")
    assert windows.classes["sex"] == ("female", "male")
    first = [int(np.argmax(windows.subject == k)) for k in range(4)]
    assert windows.labels["weight"][first].tolist() == [0, 1, 2, 1]
    assert windows.labels["age"][first].tolist() == [0, 1, UNKNOWN, 0]
    assert windows.labels["sex"][first].tolist() == [1, 0, 1, 0]


def test_files_by_pattern_without_recording(tmp_path: Path) -> None:
    table = walks(people=3, sessions=2)
    (tmp_path / "day").mkdir()
    for session, part in table.groupby("session"):
        part.to_csv(tmp_path / "day" / f"s{session}.csv", index=False)
    toml = TOML.replace('recording = "session"\n', "")
    (tmp_path / "a.toml").write_text(toml.replace('file = "walks.csv"', 'files = ["day/*.csv"]'))
    names = Table().read(tmp_path / "a.toml").items
    assert [item.name for item in names] == [f"p{p}/day/s{s}" for p in range(3) for s in (1, 2)]
    table.to_csv(tmp_path / "walks.csv", index=False)
    (tmp_path / "b.toml").write_text(toml)
    assert [item.name for item in Table().read(tmp_path / "b.toml").items] == ["p0", "p1", "p2"]


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    table, path = walks(), written(tmp_path)
    straight = all_windows(path).signal
    table.to_csv(tmp_path / "walks.csv", index=False, sep=";", decimal=",")
    assert "separator = ';'" in refusal(path)
    path.write_text("separator = ';'\ndecimal = ','\n" + TOML)
    assert np.array_equal(all_windows(path).signal, straight)


@pytest.mark.parametrize("form", ["seconds", "iso", "milliseconds in iso", "datetime"])
def test_even_times_change_nothing(tmp_path: Path, form: str) -> None:
    table = walks()
    straight = all_windows(written(tmp_path, table)).signal
    dates = pd.Timestamp("2024-05-01T12:00:00") + pd.to_timedelta(table["t"], unit="s")
    if form == "iso":
        table["t"] = dates.map(lambda date: date.isoformat())
    elif form == "milliseconds in iso":
        table["t"] = dates.dt.strftime("%Y-%m-%dT%H:%M:%S.%f").str[:-3]
    elif form == "datetime":
        table["t"] = dates
    path = written(tmp_path, table, 'time = "t"\n' + TOML)
    if form == "datetime":
        table.to_parquet(tmp_path / "walks.parquet")
        path.write_text(path.read_text().replace("walks.csv", "walks.parquet"))
    assert np.array_equal(all_windows(path).signal, straight)


def test_uneven_times_are_evened_by_lines(tmp_path: Path) -> None:
    table = walks(people=2, sessions=2)
    rng = np.random.default_rng(1)
    for rows in table.groupby(["person", "session"]).indices.values():
        table.loc[rows, "t"] = np.arange(40) / 50 + rng.uniform(-0.008, 0.008, 40)
    table["ax"] = 3 * table["t"] + 1  # a line in time stays that line at any times
    path = written(tmp_path, table, 'time = "t"\n' + TOML)
    corpus = Table().corpus(path)
    begins = table.groupby(["person", "session"])["t"].first()  # in the order of the recordings
    for first, samples, begin in zip(corpus.first, corpus.samples, begins, strict=True):
        expected = 3 * (begin + np.arange(samples) / 50) + 1
        assert np.allclose(corpus.store[0, first : first + samples], expected, atol=1e-5)


def test_interleaved_rows_need_times(tmp_path: Path) -> None:
    table = walks(people=2, sessions=2).sort_values(["t", "person"], kind="stable")
    message = refusal(written(tmp_path, table))
    assert "goes on at row" in message
    assert "time column" in message
    with_time = all_windows(written(tmp_path, table, 'time = "t"\n' + TOML))
    together = all_windows(written(tmp_path, walks(people=2, sessions=2)))
    assert np.array_equal(with_time.signal, together.signal)


def test_split_by_a_column(tmp_path: Path) -> None:
    toml = TOML + '[splits.last]\nby = "label"\nlabel = "session"\ntest_values = [3]\n'
    split = load(str(written(tmp_path, toml=toml)), "last")
    assert set(split.test.to_frame()["recording"].str.split("/").str[1]) == {"3"}
    changing = toml.replace('"session"\ntest', '"t"\ntest')
    assert "splits need one t" in refusal(written(tmp_path, toml=changing))


TOML_MISTAKES = [
    ("sample_rate = 50", "sample_rat = 50", "'sample_rat' is unknown; known: attributes, channels"),
    ("sample_rate = 50", 'time = "t"', "by the times, write sample_rate = 50"),
    ("sample_rate = 50", 'sample_rate = "50"', "'sample_rate' must be a number"),
    ("sample_rate = 50", 'sample_rate = 50\ntime = "session"', "times step by"),
    ('subject = "person"', "", "'subject' is missing"),
    ('subject = "person"', 'subject = "who"', "lacks the column who; it has person, session"),
    ('["ax", "ay"]', '["ax", "az"]', "lacks the column az"),
    ('["ax", "ay"]', '"ax"', "'channels' must be a list"),
    ('["activity"]', '["gender"]', "lacks the column gender"),
    ('["activity"]', "[]", "'attributes' is missing"),
    ('["activity"]', '["ax"]', "different numbers; give its bins"),
    ('file = "walks.csv"', "", "either 'file' or 'files'"),
    ('file = "walks.csv"', 'file = "walk.csv"', "no file 'walk.csv'"),
    ('file = "walks.csv"', 'files = ["walks.csv", "day/*.csv"]', "no file 'day/*.csv'"),
    ('file = "walks.csv"', 'file = "."', "'.' is no file with recordings"),
    ("length = 8", "lenght = 8", "'lenght' is unknown; known: length, stride"),
    ("[window]", "separator = '::'\n[window]", "one character"),
    ("[window]", "[people]\nfile = 'no.csv'\n[window]", "no.csv is missing"),
    ('["activity"]', "{ activity = { up_to = [1] } }", "'rest' is no number"),
]


@pytest.mark.parametrize(("old", "new", "expected"), TOML_MISTAKES)
def test_mistakes_in_the_toml(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in TOML
    message = refusal(written(tmp_path, toml=TOML.replace(old, new)))
    assert expected in message
    assert "walks." in message or "no.csv" in message


def cell(row: int, column: str, value: Any) -> pd.DataFrame:
    table = walks().astype({column: object})
    table.loc[row, column] = value
    return table


def test_an_attribute_without_any_class(tmp_path: Path) -> None:
    assert "'activity' has no class" in refusal(written(tmp_path, walks().assign(activity=None)))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (cell(6, "t", 0.01), "row 7: the time of recording 'p0/1' runs backwards"),
        (cell(6, "t", "noon"), "row 7, t: 'noon' is no time"),
        (cell(6, "t", None), "row 7, t: 'nan' is no time"),
        (walks().assign(t=lambda table: table["t"] * 1000), "times step by 20 s"),
        (
            walks().assign(t=lambda table: table["t"].where(table.index >= 40, 1.0)),
            "recording 'p0/1' has one time for all its samples",
        ),
        (
            walks().assign(t=lambda table: table["t"] + 60 * (table.index % 40 > 9)),
            "pauses for 60.02 s after its sample 10",
        ),
    ],
)
def test_mistakes_in_times(tmp_path: Path, table: pd.DataFrame, expected: str) -> None:
    assert expected in refusal(written(tmp_path, table, 'time = "t"\n' + TOML))


def test_mistakes_in_the_table_of_people(tmp_path: Path) -> None:
    toml = TOML.replace('["activity"]', '["activity", "sex"]') + "[people]\nfile = 'people.csv'\n"
    path = written(tmp_path, toml=toml)
    for content, expected in [
        ("person,sex\np0,f\np1,m\np2,m\n", "no row for person 'p3'"),
        ("person,sex\np0,f\np1,m\np1,m\n", "row 3: person 'p1' appears twice"),
        ("who,sex\np0,f\n", "lacks the column person; it has who, sex"),
        ("person,age\np0,3\np1,4\np2,5\np3,6\n", "lacks the column sex"),
        ("person,sex,activity\np0,f,a\np1,m,a\np2,m,b\np3,f,b\n", "both have the column activity"),
    ]:
        (tmp_path / "people.csv").write_text(content)
        assert expected in refusal(path)


def test_places_that_are_no_toml(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "walks.csv", None):
        with pytest.raises(Refusal, match="TOML"):
            load("table", source=source)
    assert "none.toml is missing" in refusal(tmp_path / "none.toml")
    with pytest.raises(Refusal, match="nothing to prepare"):
        Table().prepare(tmp_path / "a.toml", tmp_path / "a.safetensors")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)


def test_short_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heading = _blocks("csv")[0].splitlines()[0]
    table = walks(samples=300).rename(columns={"activity": "label"})
    table = table.assign(az=table["ay"], activity=table["label"])[heading.split(",")]
    table.to_csv(tmp_path / "walks.csv", index=False)
    (tmp_path / "walks.toml").write_text(_blocks("toml")[0])
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(_blocks("python")[0], scope)
    assert scope["windows"].train.shape == (3, 128)
    assert np.all(np.diff(np.unique(scope["windows"].train.start)) == 64)


def test_long_example_of_the_page(tmp_path: Path) -> None:
    table = walks(samples=300).assign(az=1.5, act=lambda t: t["activity"].str[0])
    table = table.assign(**{f"gyro.{axis}": 2.0 for axis in "xyz"}).drop(columns="activity")
    for year in ("2023", "2024"):
        (tmp_path / year).mkdir()
    first = table["session"] == 1
    table[first].to_csv(tmp_path / "2023" / "a.csv", index=False, sep=";", decimal=",")
    table[~first].to_parquet(tmp_path / "2024" / "b.parquet")
    (tmp_path / "people.csv").write_text(
        "id;weight;age\np0;60;30\np1;80,5;50\np2;95;20\np3;70;40\n"
    )
    (tmp_path / "walks.toml").write_text(_blocks("toml")[1])
    split = load(str(tmp_path / "walks.toml"))
    assert split.train.origin.split == "subject"
    assert (split.train.sample_rate, split.train.shape) == (25, (4, 100))
    assert np.allclose(split.train.signal[:, 3], np.sqrt(12), atol=1e-4)
    assert split.train.classes["weight"] == ("up to 70", "above 70 to 90", "above 90")
    assert split.train.classes["age"] == ("below 40", "from 40")
