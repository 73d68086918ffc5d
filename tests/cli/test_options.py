"""Options as text and what is printed: the parts that every command is made of."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from sensorveil.cli.options import check_device, names, numbers, pairs, settings, values
from sensorveil.cli.screen import Screen, errors
from sensorveil.errors import Refusal
from sensorveil.methods.registry import list_methods, method
from sensorveil.progress import track

WORD = st.text("abcdefghijklmnopqrstuvwxyz_-0123456789", min_size=1)
MARKUP = ["[red]walk[/red]", "[/walk]", "a [b] c", "[link=x]", "\\[x]"]


@dataclass(frozen=True)
class Knobs:
    """Settings with one of each kind."""

    steps: int = 1
    rate: float = 0.5
    deep: bool = False
    kind: str = "plain"


# Options.


@given(st.lists(st.tuples(WORD, st.booleans())))
def test_names_do_not_depend_on_how_they_are_given(words: list[tuple[str, bool]]) -> None:
    """Joined by commas at any places, with spaces: always the same names in the same order."""
    given_texts: list[str] = []
    for word, joined in words:
        if given_texts and joined:
            given_texts[-1] += f", {word} "
        else:
            given_texts.append(word)
    assert names(given_texts) == [word for word, _ in words]


@pytest.mark.parametrize("nothing", [[], [""], [","], [" , ", ",,"]])
def test_no_names(nothing: list[str]) -> None:
    assert names(nothing) == []


@given(st.dictionaries(WORD, WORD))
def test_pairs_come_back(wanted: dict[str, str]) -> None:
    assert pairs([f"{name}={value}" for name, value in wanted.items()], "x") == wanted
    assert pairs([",".join(f"{name}={value}" for name, value in wanted.items())], "x") == wanted


def test_pairs_keep_what_stands_behind_the_first_equals_sign() -> None:
    assert pairs(["path=a=b"], "x") == {"path": "a=b"}
    assert pairs(None, "x") == {}


@given(st.dictionaries(WORD, WORD, min_size=1), st.integers(0, 9))
def test_pair_given_twice_is_refused(wanted: dict[str, str], place: int) -> None:
    texts = [f"{name}={value}" for name, value in wanted.items()]
    again = list(wanted)[place % len(wanted)]
    with pytest.raises(Refusal, match=f"knob '{again}' is given twice"):
        pairs([*texts, f"{again}=1"], "knob")


@pytest.mark.parametrize("text", ["keep", "keep=", "=4", "="])
def test_malformed_pair_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match=f"^knob '{text}' is not of the form name=value$"):
        pairs([text], "knob")


def test_spaces_around_a_pair_do_not_matter() -> None:
    assert numbers(["keep = 4", " gender =0.3 "], "strength") == {"keep": 4.0, "gender": 0.3}


@given(st.dictionaries(WORD, st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_come_back(wanted: dict[str, float]) -> None:
    assert numbers([f"{name}={value!r}" for name, value in wanted.items()], "x") == wanted


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(Refusal, match=r"^strength 'gender': 'much' is no number$"):
        numbers(["keep=4,gender=much"], "strength")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("3.0", 3.0),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("laplace", "laplace"),
        ("3rd", "3rd"),
    ],
)
def test_values_are_what_they_look_like(text: str, value: object) -> None:
    found = values([f"x={text}"], "option")["x"]
    assert found == value
    assert type(found) is type(value)


@given(st.integers())
@example(2**53 + 1)
def test_whole_numbers_stay_whole(number: int) -> None:
    # Through a float, those above 2 to the power of 53 would change.
    found = values([f"seed={number}"], "option")["seed"]
    assert found == number
    assert type(found) is int


def test_settings_have_the_types_of_the_method() -> None:
    found = settings(["steps=3,rate=2", "deep=True", "kind=7"], Knobs, "mine")
    assert found == {"steps": 3, "rate": 2.0, "deep": True, "kind": "7"}
    assert [type(value) for value in found.values()] == [int, float, bool, str]
    assert settings(None, Knobs, "mine") == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("stepps=3", "setting of mine 'stepps' is unknown; known: deep, kind, rate, steps"),
        ("steps=2.5", "setting 'steps': '2.5' is no whole number"),
        ("steps=few", "setting 'steps': 'few' is no number"),
        ("rate=fast", "setting 'rate': 'fast' is no number"),
        ("deep=yes", "setting 'deep': 'yes' is neither true nor false"),
    ],
)
def test_bad_settings_are_named(text: str, line: str) -> None:
    with pytest.raises(Refusal) as caught:
        settings([text], Knobs, "mine")
    assert str(caught.value) == line


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e400"])
@pytest.mark.parametrize("name", ["steps", "rate"])
def test_settings_are_finite(name: str, text: str) -> None:
    with pytest.raises(Refusal, match=f"'{name}'.*'{text}'"):
        settings([f"{name}={text}"], Knobs, "mine")


@given(st.integers())
@example(2**53 + 1)
def test_whole_settings_stay_whole(number: int) -> None:
    assert settings([f"steps={number}"], Knobs, "mine") == {"steps": number}


@given(st.text(), st.sampled_from(["steps", "rate", "deep"]))
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    """Whatever stands behind the sign: a value of the right type, or a refusal."""
    kind = {"steps": int, "rate": float, "deep": bool}[name]
    # Anything but a refusal would come through here as the error that it is.
    with contextlib.suppress(Refusal):
        found = settings([f"{name}={text}"], Knobs, "mine")
        assert all(type(value) is kind for value in found.values())


@pytest.mark.parametrize("name", list_methods())
def test_every_setting_of_every_method_can_be_set(name: str) -> None:
    """A method whose settings have a type that the command line cannot read is found here."""
    made = method(name)
    for preset in made.presets:
        wanted = made(preset).settings.flat()
        texts = [
            f"{entry}={'-'.join(map(str, value)) if isinstance(value, tuple) else value}"
            for entry, value in wanted.items()
            if value != ""
        ]
        assert made(**settings(texts, made.Settings, name)).settings.flat() == wanted


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_device("cpu") == "cpu"
    with pytest.raises(Refusal, match="device 'tpu' is unknown; known: cpu, cuda"):
        check_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Refusal, match="--device cpu"):
        check_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert check_device("cuda") == "cuda"


# The screen.


def everything(screen: Screen) -> None:
    """All that a command may print."""
    screen.say("a line")
    screen.table("A table", ("name", "number"), [("one", "1")])
    with screen.bars():
        for _ in track(range(3), "working"):
            pass
    screen.result({"number": 1})


def test_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    everything(Screen())
    shown = capsys.readouterr()
    assert shown.out.startswith("a line\n")
    for word in ("A table", "name", "number", "one", "1"):
        assert word in shown.out
    assert "{" not in shown.out
    # Where nobody watches, as in a log, bars would only be in the way: not even an empty line.
    assert shown.err == ""


def test_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    everything(Screen(as_json=True))
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"number": 1}
    assert shown.err == ""


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    everything(Screen(quiet=True))
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("kind", [{}, {"quiet": True}, {"as_json": True}])
def test_bars_are_on_the_error_stream_alone(
    kind: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    with Screen(**kind).bars():
        for _ in track(range(3), "working"):
            pass
    shown = capsys.readouterr()
    assert shown.out == ""
    if kind:
        assert shown.err == ""
    else:
        assert "working" in shown.err
        assert "3/3" in shown.err


@pytest.mark.usefixtures("terminal")
def test_a_bar_starts_again_with_its_work(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen().bars():
        for total in (3, 5):
            for _ in track(range(total), "working"):
                pass
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err).splitlines()
    shown = [line for line in last if "working" in line]
    assert "5/5" in shown[-1]
    assert "3/3" not in shown[-1]


def test_listening_ends_with_the_bars() -> None:
    heard: list[int] = []
    with Screen().bars():
        pass
    # Would fail if the closed bars still were told about progress.
    for step in track(range(2), "working"):
        heard.append(step)
    assert heard == [0, 1]


@pytest.mark.parametrize("text", MARKUP)
def test_brackets_are_shown_as_they_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Class names are the user's: those with brackets are neither swallowed nor a crash."""
    Screen().say(text)
    assert capsys.readouterr().out == f"{text}\n"
    Screen().table("Title", ("name", "number"), [(text, text)])
    assert capsys.readouterr().out.count(text) == 2


def test_long_lines_are_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    line = "word " * 40 + "end"
    Screen().say(line)
    errors.print(line, markup=False)
    assert capsys.readouterr() == (f"{line}\n", f"{line}\n")


def test_narrow_tables_lose_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    Screen().table("T", ("name", "value"), [("abcdefghijklmnopqrstuvwxyz", "0123456789" * 2)])
    letters = re.sub(r"[^a-z0-9]", "", capsys.readouterr().out)
    assert set("abcdefghijklmnopqrstuvwxyz0123456789") <= set(letters)
    assert len(letters) == len("tnamevalue") - 1 + 26 + 20


def test_json_keeps_letters_of_all_languages(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=True).result({"name": "größer"})
    assert capsys.readouterr().out == '{"name": "größer"}\n'
