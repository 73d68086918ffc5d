"""Charts are well-formed, the same each time, and say in words what they show."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import sample

from sensorveil.audit.results import HIDDEN
from sensorveil.report import charts
from sensorveil.report.charts import Mark
from sensorveil.report.findings import all_attacks
from sensorveil.statistics import Estimate

NOTHING = Estimate(math.nan, math.nan, math.nan, people=0)
WORST = sample.estimate(0.589)


def drawn(chart):
    """The chart as XML, which also proves that it is well formed."""
    return ET.fromstring(chart.svg(1))


def texts(chart):
    return ["".join(node.itertext()) for node in drawn(chart).iter("text")]


def strip(status=HIDDEN, worst=WORST, raw=0.983, name="gender"):
    return charts.strip(status, 0.57, worst, raw, name)


def attacks(found, **more):
    return charts.attacks(all_attacks(found), found.majority, found.worst, "gender", **more)


def curve(*gains):
    points = sample.curve(gains, found=True)[:5]
    ways = [charts.ADDS_UP, charts.ADDS_UP, "set network", "set network", "sequence network"]
    return charts.session_curve(points, ways, "gender")


def marks():
    return [
        Mark("run", "this run", "good", 0.6, 0.9),
        Mark("baseline", "1", "beaten", 0.7, 0.8),
        Mark("baseline", "2", "better kept", 0.8, 0.95),
        Mark("ideal", "ideal", "the ideal", 0.5, 1.0),
    ]


EVERY = {
    "strip": strip,
    "attacks": lambda: attacks(sample.gender_found_out(), bound=0.62),
    "sessions": lambda: curve(0.0, 0.01, 0.05, 0.2, 0.3),
    "trade-off": lambda: charts.trade_off(marks(), 0.5, 0.9, frontier=True),
    "signals": lambda: charts.signals(sample.example()),
}


@pytest.mark.parametrize("draw", EVERY.values(), ids=EVERY)
def test_every_chart_is_the_same_each_time_and_takes_the_pages_colours_and_fonts(draw):
    svg = draw().svg(1)
    assert svg == draw().svg(1)
    root = drawn(draw())
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.find("title").text
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg)) - {"none"}
    assert colours
    assert all(colour.startswith("var(--") for colour in colours)
    assert not re.search("font-family|url\\(|https?:|DejaVu|<metadata|[0-9]{4}-[0-9]{2}-", svg)
    assert not set(re.findall(r' id="([^"]+)"', svg)) & set(
        re.findall(r' id="([^"]+)"', draw().svg(2))
    )


def test_strip_says_in_words_what_it_shows():
    label = drawn(strip()).get("aria-label")
    for figure in ("57.0%", "58.9%", "98.3%"):
        assert figure in label
        assert figure in " ".join(texts(strip()))


@pytest.mark.parametrize("value", [0.0, 0.03, 0.5, 0.97, 1.0])
def test_texts_of_a_strip_stay_inside_the_chart(value):
    chart = charts.strip(HIDDEN, value, Estimate(value, value, value, people=3), 1 - value, "a")
    for node in drawn(chart).iter("text"):
        width = 7 * len(node.text)
        side = re.search(r"text-anchor: (\w+)", node.get("style", ""))
        x = float(re.search(r"[\d.]+(?= [\d.]+\)$)", node.get("transform"))[0])
        left = x - width * {"middle": 0.5, "end": 1}.get(side[1] if side else "start", 0)
        assert left >= -3
        assert left + width <= charts.WIDTH + 3


def test_attacks_are_named_in_the_order_of_knowledge_with_their_figures():
    said = texts(attacks(sample.gender_found_out()))
    order = [said.index(model) for model in ("raw", "ignorant", "lazy", "semi-informed", "control")]
    assert order == sorted(order)
    assert said.count("boosted trees") == 6
    assert said.count("79.2%") == 1
    assert not any("bound" in text for text in said)
    assert "bound: at most 62.0%" in texts(attacks(sample.gender_found_out(), bound=0.62))


def test_session_curve_marks_the_leaks_by_a_word():
    said = texts(curve(0.0, 0.01, 0.05, 0.2, 0.3))
    assert said.count("leak") == 2
    assert {"1", "5", "20", "60", "all"} <= set(said)


def test_session_curve_names_the_attackers_and_what_it_attacks():
    chart = curve(0.0, 0.01, 0.05, 0.2, 0.3)
    said = texts(chart)
    assert [said.count(way) for way in ("adds up", "set", "sequence")] == [2, 2, 1]
    assert "60 (set network): 78.3% against 58.3% (leak found)" in chart.label
    looks = charts.session_curve(sample.looks((0, 0, 0)), [charts.ADDS_UP] * 3, "gender")
    assert "obfuscations of one window" in looks.label
    assert "leak" not in texts(looks)


def test_attacks_that_found_a_leak_have_a_mark_of_their_own():
    """Without a leak, all marks are circles, whose paths have curves."""

    def crosses(found):
        return attacks(found).svg(1).count("--not-hidden")

    assert crosses(sample.attribute()) == 0
    assert crosses(sample.gender_found_out()) > 0


def test_the_frontier_joins_what_nothing_beats():
    chart = charts.trade_off(marks(), frontier=True)
    (line,) = [n for n in drawn(chart).iter("g") if n.get("class") == "frontier"]
    points = re.findall(r"[ML] ([\d.]+) ([\d.]+)", line.find("path").get("d"))
    assert len(points) == 2, "of the three runs one is beaten, and the ideal is none"


def test_points_too_close_for_labels_of_their_own_share_one():
    close = [Mark("run", name, name, 0.57 + 0.001 * i, 0.97) for i, name in enumerate("ABCD")]
    said = texts(charts.trade_off([*close, Mark("baseline", "1", "far", 0.9, 0.6)]))
    assert "A, B, C, D" in said
    assert "1" in said


def test_long_signals_and_many_channels_stay_small():
    wave = tuple(math.sin(i) for i in range(50_000))
    example = replace(
        sample.example(), channels=("c",) * 40, before=(wave,) * 40, after=(wave,) * 40
    )
    chart = charts.signals(example)
    assert len(chart.svg(1)) < 120_000
    assert "6 of 40 channels" in chart.label


def test_flat_and_unknown_signals_are_drawn():
    example = replace(
        sample.example(), channels=("a",), before=((1.0, 1.0, math.nan),), after=((1.0,) * 3,)
    )
    assert "nan" not in charts.signals(example).svg(1)


def test_names_are_shown_as_they_are():
    for name in ("<script>", "a $x$ b", 'id="#1', "größer 走"):
        example = replace(sample.example(), title=name, channels=(name, "b"))
        assert name in texts(charts.signals(example))
        assert drawn(charts.signals(example)).get("aria-label").startswith(name)
