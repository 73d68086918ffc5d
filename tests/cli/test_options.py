"""Options as text and what is printed: what every command is made of."""

from __future__ import annotations

import re

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

# Options.


@given(st.lists(st.tuples(WORD, st.booleans())))
def test_names_do_not_depend_on_how_they_are_given(words):
    """Joined by commas at any places, with spaces: always the same names in the same order."""
    typed = []
    for word, joined in words:
        if typed and joined:
            typed[-1] += f", {word} "
        else:
            typed.append(word)
    assert names(typed) == [word for word, _ in words]


@pytest.mark.parametrize("nothing", [None, [], [""], [","], [" , ", ",,"]])
def test_no_names(nothing):
    assert names(nothing) == []
    assert pairs(nothing, "x") == {}


@given(st.dictionaries(WORD, WORD, min_size=1))
def test_pairs_come_back_and_are_refused_twice(wanted):
    typed = [f"{name}={value}" for name, value in wanted.items()]
    assert pairs(typed, "x") == pairs([",".join(typed)], "x") == wanted
    with pytest.raises(Refusal, match="twice"):
        pairs([*typed, typed[0]], "x")


@pytest.mark.parametrize("text", ["keep", "keep=", "=4", "="])
def test_malformed_pair_is_refused(text):
    with pytest.raises(Refusal, match=f"^strength '{text}' is not of the form name=value$"):
        pairs([text], "strength")


@given(st.dictionaries(WORD, st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_come_back(wanted):
    assert numbers([f" {name} = {value!r}" for name, value in wanted.items()], "x") == wanted


def test_what_is_no_number_is_named():
    with pytest.raises(Refusal, match=r"^strength 'gender': 'much' is no number$"):
        numbers(["keep=4,gender=much"], "strength")


@pytest.mark.parametrize(
    ("text", "value"),
    [("-3", -3), ("3.0", 3.0), ("1e3", 1000.0), ("true", True), ("False", False), ("3rd", "3rd")],
)
def test_values_are_what_they_look_like(text, value):
    found = values([f"x={text}"], "option")["x"]
    assert (found, type(found)) == (value, type(value))


@given(st.integers())
@example(2**53 + 1)  # a float would change it
def test_whole_numbers_stay_whole(number):
    assert values([f"seed={number}"], "option") == {"seed": number}


@pytest.mark.parametrize("name", list_methods())
def test_every_setting_of_every_method_can_be_set(name):
    """A setting whose type the command line cannot express is found here."""
    made = method(name)
    for preset in made.presets:
        wanted = made(preset).settings.flat()
        texts = [
            f"{entry}={'-'.join(map(str, value)) if isinstance(value, tuple) else value}"
            for entry, value in wanted.items()
            if value != ""
        ]
        assert made(**settings(texts, made.Settings, name)).settings.flat() == wanted


def test_settings_of_several_methods():
    kinds = [method("noise").Settings, method("downsample").Settings]
    typed = ["snr=3", "factor=2"]
    assert settings(typed, kinds, "both") == {"snr": "3", "factor": "2"}
    with pytest.raises(Refusal, match="setting of both 'snt' is unknown"):
        settings(["snt=3"], kinds, "both")


def test_devices(monkeypatch):
    assert check_device("cpu") == "cpu"
    with pytest.raises(Refusal, match="device 'tpu' is unknown; known: cpu, cuda"):
        check_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert check_device("cuda") == "cuda"


# The screen.


def printed(screen, capsys):
    """All that a command may print."""
    screen.say("a line")
    screen.table("A table", ("name", "number"), [("one", "1")])
    with screen.bars():
        for total in (3, 5):  # a bar starts again with its work
            for _ in track(range(total), "working"):
                pass
    screen.result({"name": "größer"})
    return capsys.readouterr()


def test_for_a_person(capsys):
    shown = printed(Screen(), capsys)
    assert shown.out.startswith("a line\nA table\n")
    assert re.search(r"one\s+│\s+1", shown.out)
    assert "größer" not in shown.out
    # Where nobody watches, as in a log, bars would only be in the way: not even an empty line.
    assert shown.err == ""


@pytest.mark.parametrize("terminal_or_not", ["terminal", "apart"])
def test_for_a_program_and_quiet(terminal_or_not, request, capsys):
    request.getfixturevalue(terminal_or_not)
    assert printed(Screen(as_json=True), capsys) == ('{"name": "größer"}\n', "")
    assert printed(Screen(quiet=True), capsys) == ("", "")


@pytest.mark.usefixtures("terminal")
def test_bars_are_on_the_error_stream_alone(capsys):
    shown = printed(Screen(), capsys)
    assert "working" not in shown.out
    last = [line for line in re.split(r"[\r\n]", shown.err) if "working" in line][-1]
    assert "5/5" in last
    assert "3/3" not in last
    assert list(track(range(2), "later")) == [0, 1]  # a closed bar listens no more


@pytest.mark.parametrize("text", ["[red]walk[/red]", "[/walk]", "a [b] c", "[link=x]", "\\[x]"])
def test_brackets_are_shown_as_they_are(text, capsys):
    """Class names are the user's: those with brackets are neither swallowed nor a crash."""
    Screen().say(text)
    assert capsys.readouterr().out == f"{text}\n"
    Screen().table("Title", ("name", "number"), [(text, text)])
    assert capsys.readouterr().out.count(text) == 2


def test_narrow_terminals_break_no_line_and_lose_no_cell(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    line = "word " * 40 + "end"
    Screen().say(line)
    errors.print(line, markup=False)
    assert capsys.readouterr() == (f"{line}\n", f"{line}\n")
    Screen().table("", ("a", "b"), [("abcdefghijklmnopqrstuvwxyz", "0123456789" * 2)])
    shown = re.sub(r"[^a-z0-9]", "", capsys.readouterr().out)
    assert len(shown) == 2 + 26 + 20
