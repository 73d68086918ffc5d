from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st

from sensorveil.audit.results import HIDDEN, INCONCLUSIVE, NOT_HIDDEN
from sensorveil.measures.estimate import Estimate
from sensorveil.report import charts
from sensorveil.report.drawing import WIDTH, Axis, fitted_axis, percent_ticks

shares = st.floats(0, 1)
statuses = st.sampled_from([HIDDEN, NOT_HIDDEN, INCONCLUSIVE])


def drawn(svg):
    """The chart as XML, which also proves that it is well formed."""
    return ET.fromstring(svg)


def circles(svg, kind):
    found = [c for c in drawn(svg).iter("circle") if kind in c.get("class").split()]
    return [(float(c.get("cx")), float(c.get("cy"))) for c in found]


def coordinates(svg):
    for node in drawn(svg).iter():
        for name in ("x", "x1", "x2", "cx"):
            if node.get(name) is not None:
                yield float(node.get(name))
        for pair in (node.get("points") or "").split():
            yield float(pair.split(",")[0])


@given(statuses, shares, shares, shares, shares)
def test_strip_stays_inside_and_places_the_dot(status, majority, value, other, raw):
    low, high = sorted((value, other))
    svg = charts.strip(status, majority, Estimate(value, low, high, people=3), raw, "gender")
    assert all(0 <= x <= WIDTH for x in coordinates(svg))
    ((x, _),) = circles(svg, "dot")
    assert x == pytest.approx(4 + value * (WIDTH - 8), abs=0.06)


def test_strip_says_in_words_what_it_shows():
    svg = charts.strip(HIDDEN, 0.57, sample.estimate(0.589), 0.983, "gender")
    label = drawn(svg).get("aria-label")
    for figure in ("57.0%", "58.9%", "98.3%"):
        assert figure in label
        assert figure in "".join(drawn(svg).itertext())


def test_void_looks_like_neither():
    svg = charts.strip(INCONCLUSIVE, 0.57, sample.estimate(0.57), 0.983, "gender")
    assert "unproven attacker" in svg
    assert circles(svg, "void")
    assert not circles(svg, "hidden")
    assert len({charts.symbol(status) for status in (HIDDEN, NOT_HIDDEN, INCONCLUSIVE)}) == 3


def test_strip_without_figures():
    nothing = Estimate(math.nan, math.nan, math.nan, people=0)
    for svg in (
        charts.strip(INCONCLUSIVE, 0.5, None, None, "a"),
        charts.strip(INCONCLUSIVE, 0.5, nothing, None, "a"),
    ):
        assert not circles(svg, "dot")
        assert "nan" not in svg


def test_ladder_has_a_dot_for_each_attack_in_the_order_of_knowledge():
    found = sample.gender_found_out()
    svg = charts.ladder((*found.attacks, found.control), found.majority, found.worst, "gender")
    assert len(circles(svg, "dot")) == 16
    assert len(circles(svg, "worst")) == 1
    assert len(circles(svg, "hollow")) == 4  # three on raw data, and the control
    texts = [node.text for node in drawn(svg).iter("text")]
    order = [texts.index(level) for level in ("raw", "ignorant", "lazy", "semi-informed")]
    assert order == sorted(order)
    (x, _) = circles(svg, "worst")[0]
    assert x == pytest.approx(130 + 0.792 * 166, abs=0.06)


def test_ladder_with_an_unknown_figure():
    found = sample.attribute()
    unknown = replace(found.attacks[0], accuracy=Estimate(math.nan, math.nan, math.nan, people=0))
    svg = charts.ladder((unknown,), 0.5, None, "gender")
    assert not circles(svg, "dot")
    assert "nan" not in svg


def test_session_curve_marks_the_leaks_by_a_word():
    points = sample.curve((0.0, 0.01, 0.05, 0.2, 0.3), found=True)[:5]
    svg = charts.session_curve(points, "gender")
    assert [n.text for n in drawn(svg).iter("text")].count("leak") == 2
    assert len(circles(svg, "open")) == 2
    heights = [y for _, y in circles(svg, "dot")]
    assert heights == sorted(heights, reverse=True)
    for many in ("1", "5", "20", "60", "all"):
        assert many in [n.text for n in drawn(svg).iter("text")]


@given(st.lists(st.tuples(shares, shares), min_size=1, max_size=12))
def test_trade_off_draws_every_point_inside(places):
    marks = [charts.Mark("plain", str(i), f"m{i}", *place) for i, place in enumerate(places)]
    svg = charts.trade_off(marks, guess=0.5, raw=0.9, frontier=True)
    dots = circles(svg, "dot")
    assert len(dots) == len(places)
    assert all(46 <= x <= 326 and 42 <= y <= 226 for x, y in dots)


def test_trade_off_labels_of_close_points_do_not_cover_each_other():
    marks = [
        charts.Mark("run", name, name, 0.57 + 0.001 * i, 0.97) for i, name in enumerate("ABCD")
    ]
    svg = charts.trade_off(marks)
    texts = [n for n in drawn(svg).iter("text") if n.text in set("ABCD")]
    places = [(float(n.get("x")), float(n.get("y"))) for n in texts]
    for i, (x, y) in enumerate(places):
        for u, v in places[i + 1 :]:
            assert abs(x - u) >= 8 or abs(y - v) >= 12


def test_the_frontier_joins_what_nothing_beats():
    marks = [
        charts.Mark("plain", "1", "good", 0.6, 0.9),
        charts.Mark("plain", "2", "beaten", 0.7, 0.8),
        charts.Mark("plain", "3", "better kept", 0.8, 0.95),
        charts.Mark("ideal", "ideal", "ideal", 0.5, 1.0),
    ]
    svg = charts.trade_off(marks, frontier=True)
    (curve,) = [n for n in drawn(svg).iter("polyline") if n.get("class") == "curve"]
    first, _, third = circles(svg, "dot")
    joined = [tuple(map(float, pair.split(","))) for pair in curve.get("points").split()]
    assert joined == [pytest.approx(first, abs=0.1), pytest.approx(third, abs=0.1)]


def test_signals_share_one_scale_before_and_after():
    example = replace(sample.example(), channels=("a",), before=((0.0, 1.0),), after=((0.0, 0.5),))
    svg = charts.signals(example)
    before, after = [n.get("points") for n in drawn(svg).iter("polyline")]

    def heights(points):
        ys = [float(pair.split(",")[1]) for pair in points.split()]
        return max(ys) - min(ys)

    assert heights(after) == pytest.approx(heights(before) / 2, abs=0.15)


def test_long_signals_and_many_channels_stay_small():
    wave = tuple(math.sin(i) for i in range(50_000))
    example = replace(
        sample.example(), channels=("c",) * 40, before=(wave,) * 40, after=(wave,) * 40
    )
    assert len(charts.signals(example)) < 60_000
    assert "6 of 40 channels" in charts.signals(example)


def test_flat_and_unknown_signals_are_drawn():
    example = replace(
        sample.example(), channels=("a",), before=((1.0, 1.0, math.nan),), after=((1.0,) * 3,)
    )
    assert not re.search(r"\bnan\b", charts.signals(example))


@given(st.lists(shares, min_size=1, max_size=5))
def test_axes_hold_their_values(values):
    axis = fitted_axis(values, 0, 100)
    assert axis.low <= min(values)
    assert max(values) <= axis.high
    assert axis.low < axis.high
    assert len(percent_ticks(axis.low, axis.high)) >= 2


def test_axis_keeps_what_lies_beyond_at_its_end():
    assert Axis(0, 1, 10, 20).at(7) == 20


def test_ladder_with_a_bound_that_nobody_passes():
    found = sample.attribute()
    plain, bounded = (
        charts.ladder(found.attacks, found.majority, found.worst, "gender", bound=bound)
        for bound in (None, 0.62)
    )
    assert 'class="bound"' not in plain
    assert bounded.count('class="bound"') == 1
    assert "nobody above 62.0%" in bounded
