"""Pages: what they say, that they need nothing beside themselves, and that all can read them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import sample

from sensorveil.audit.criterion import CRITERION
from sensorveil.audit.measures import Measured
from sensorveil.audit.results import SignalUtility, TradeOff
from sensorveil.errors import Refusal
from sensorveil.methods.seal_bound import Bound
from sensorveil.report import (
    Difference,
    SweepPoint,
    charts,
    page,
    render,
    render_comparison,
    render_sweep,
    write_page,
)
from sensorveil.statistics import Estimate

ALONE = {"meta", "link", "br", "hr"}


class Page(HTMLParser):
    """A page taken apart into what is read; tags that do not close as they opened are an error."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.open, self.said, self.headings, self.folded = [], [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.said.append(" ")

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.said.append(data)
        if "details" in self.open and "summary" not in self.open:
            self.folded.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append((self.open[-1], data))

    @property
    def text(self):
        return " ".join("".join(self.said).split())

    def section(self, heading):
        """The text from a heading of the second rank to the next."""
        titles = [said for tag, said in self.headings if tag == "h2"]
        after = self.text.rpartition(f" {heading} ")[2]
        following = titles[titles.index(heading) + 1 : titles.index(heading) + 2]
        return after.partition(f" {following[0]} ")[0] if following else after

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def read(audit):
    return Page(render(audit))


def bounded():
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.6, 0.07, 0.986)
    return replace(sample.attribute(), bound=bound)


def comparison():
    audits = [
        sample.two_hidden(),
        sample.audit(sample.gender_found_out(), method="code"),
        sample.audit(sample.gender_inconclusive(), method="blinder"),
    ]
    difference = Difference("resample", "code", "gender", -0.216, -0.25, -0.18, 0.0004)
    return render_comparison(audits, [difference])


def sweep():
    grid = [SweepPoint({"snr": k}, 0.9 + 0.01 * k, 0.6 + 0.05 * k) for k in (1, 4, 7)]
    return render_sweep("code on motionsense", grid, 0.8132, TradeOff("ideal", 0.98, 0.57))


ALL = {
    "hidden": lambda: render(sample.audit(bounded())),
    "not hidden": lambda: render(sample.audit(sample.gender_found_out())),
    "inconclusive": lambda: render(sample.audit(sample.gender_inconclusive())),
    "two": lambda: render(sample.two_hidden()),
    "hostile": lambda: render(sample.hostile()),
    "comparison": comparison,
    "sweep": sweep,
    "quick": lambda: render(replace(sample.audit(), quick=True)),
}


@cache
def html_of(name):
    return ALL[name]()


@cache
def page_of(name):
    return Page(html_of(name))


def test_registered_measures_are_shown() -> None:
    audit = sample.audit()
    measures = (
        Measured("range kept", "Mean range; 1 is best.", 0.875),
        Measured("steps <b>", "", None),
    )
    shown = replace(audit, splits=(replace(audit.main, measures=measures), *audit.splits[1:]))
    assert "Registered measures" not in read(audit).text
    survives = read(shown).section("What survives")
    assert "Range kept 0.88 Mean range; 1 is best." in survives
    assert "Steps <b> –" in survives


@pytest.mark.parametrize("name", ALL)
def test_needs_nothing_beside_itself(name):
    parts = page_of(name)
    assert not parts.all("script")
    assert not parts.all("img")
    assert [link["href"] for link in parts.all("link")] == ["data:,"]
    assert not re.search(r"url\(|@import|https?:", html_of(name))
    assert all(not name.startswith("on") for _, a in parts.elements for name in a)


@pytest.mark.parametrize("name", ALL)
def test_is_accessible(name):
    parts = page_of(name)
    assert parts.all("html") == [{"lang": "en"}]
    assert all(header.get("scope") in ("row", "col") for header in parts.all("th"))
    for svg in parts.all("svg"):
        assert svg.get("aria-hidden") == "true" or svg.get("aria-label")
        assert svg["viewbox"]
    levels = [int(tag[1]) for tag, _ in parts.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    anchors = [a["id"] for _, a in parts.elements if "id" in a]
    assert len(anchors) == len(set(anchors))
    assert {a["href"].lstrip("#") for a in parts.all("a") + parts.all("use")} <= set(anchors)


@pytest.mark.parametrize("name", ALL)
def test_percentages_have_one_decimal(name):
    text = page_of(name).text
    assert re.search(r"\d\.\d%", text)
    assert not re.search(r"\d\.\d{2,}%", text)
    assert not re.search(r"\d\.\d{4,}", text)
    assert not {"nan", "None", "Undefined"} & set(re.findall(r"\w+", text))


def test_hostile_names_are_shown_as_they_are_and_never_run():
    assert "<script>alert(1)</script>" in page_of("hostile").text
    compared = render_comparison([sample.hostile()] * 2)
    evil = '"><script>'
    swept = render_sweep(evil, [SweepPoint({evil: 1.0}, 0.9, 0.5)], None)
    differences = [Difference(evil, evil, evil, 0.1, 0.0, 0.2, 0.5)]
    for html in (
        html_of("hostile"),
        compared,
        swept,
        render_comparison([sample.audit()], differences),
    ):
        assert "<script" not in html


def test_sections_come_in_order():
    titles = [title for tag, title in page_of("hidden").headings if tag == "h2"]
    assert titles == [
        "What survives",
        "What hiding costs",
        "Attackers",
        "When windows add up",
        "Class by class",
        "Identity",
        "What the output is made from",
        "Information in bits",
        "Before and after",
        "Unseen people and the papers' split",
        "What counts as hidden",
        "Conditions",
    ]


SAID = {
    ("hidden", None): [
        "−1.4 to +2.6",
        "more people could change this",
        "planted leak of 10.0 points",
        "Age: worst attacker 47.0% (44.0 to 50.0) , majority baseline 42.0%",
        "bound: at most 60.0%",
        "one of 84 codes",
    ],
    ("hidden", "What the output is made from"): [
        "4,988 windows of 12 people",
        "Gender the encoder's features 55.4% 68.8% 52.3% +16.5",
        "Gender the condition 55.4% 53.6% 52.3% +1.3",
    ],
    ("hidden", "What counts as hidden"): [" ".join(CRITERION.split())],
    ("hidden", "Conditions"): [
        *("sensorveil audit runs/a", "2.13.0", "2026-11-03", "3f1c9a2e", "0, 1 and 2"),
        "40,143 13,381 24",
    ],
    ("inconclusive", None): ["nothing here proves"],
    ("quick", None): ["A quick audit"],
    ("two", None): [
        "Gender and identity (subject) are hidden.",
        "Measured on the split paper, with the same people in training and test",
        "matched to the right one of the people compared (raw, 24 people in all)",
        "on the split subject: hidden, since sessions are matched by chance",
    ],
    ("comparison", None): [
        "Resample hides everything that was to be hidden; the others do not",
        *("79.2%", "7.3% (4.3 to 10.3) , split paper", "inconclusive", "not asked for"),
        *("−21.6 (−25.0 to −18.0) below 0.001", "the ideal", "noise 2", "A, C, ideal"),
    ],
    ("sweep", None): [
        "Of 3 strengths, snr=1 has the largest distance",
        *("snr=1", "snr=4", "snr=7", "Area under the curve: 81.3%", "the ideal"),
    ],
}


@pytest.mark.parametrize(("place", "phrases"), SAID.items(), ids=map(str, SAID))
def test_what_a_page_says(place, phrases):
    name, heading = place
    said = page_of(name).section(heading) if heading else page_of(name).text
    for phrase in phrases:
        assert phrase in said


def test_what_a_page_does_not_say():
    for phrase in ("A quick audit", "nothing here proves"):
        assert phrase not in page_of("hidden").text
    for phrase in ("bound: at most", "one of 84 codes"):
        assert phrase not in page_of("not hidden").text


def test_the_verdict_comes_first_and_unlisted_attributes_are_folded():
    parts = page_of("hidden")
    assert parts.headings[0] == (
        "h1",
        "Gender is hidden: the strongest attacker, retrained on this very output, is right in 57.6%"
        " of windows; the majority baseline is right in 57.0%.",
    )
    assert ("h3", "Gender") in parts.headings
    assert "Age" in parts.folded


def test_inconclusive_is_never_dressed_as_good_news():
    header = html_of("inconclusive").split("<nav")[0].split("<header")[1]
    assert 'class="status inconclusive"' in header
    assert 'class="card inconclusive"' in header
    for good in ('status hidden"', 'card hidden"', 'class="hidden"', "var(--hidden)"):
        assert good not in header


def test_the_gap_between_the_splits_is_printed():
    said = read(replace(sample.audit(), gaps={"gender": 0.123})).text
    assert "12.3 points higher on split paper than on subject" in said


def test_another_verdict_on_another_split_stands_beside_the_first():
    whole = sample.audit()
    other = replace(whole.splits[1], attributes=(sample.gender_found_out(),))
    first = read(replace(whole, splits=(whole.main, other))).text.split("What survives")[0]
    assert "Measured on the split paper, with the same people in training and test" in first
    assert "on the split subject: hidden, since " in first
    assert "On the split subject" in first
    agreed = page_of("hidden").text.split("What survives")[0]
    assert "On the split paper" in agreed
    assert "hidden too" in agreed


def test_a_run_among_its_own_trade_off_points_is_measured_as_they_are():
    part = read(sample.audit(method="none")).section("What hiding costs")
    assert part.count("none: kept") == 1
    assert "none: kept 98.1%, attacker 98.3%" in part  # as the baselines, not the attacks' 57.6%
    assert "one quick attacker for all points" in part
    other = page_of("hidden").section("What hiding costs")
    for said in ("resample: kept 97.7%, attacker 57.6%", "worst attacker of each run", "the ideal"):
        assert said in other


def test_what_is_not_there_is_left_out():
    whole = sample.audit()
    bare = replace(
        whole.main,
        kept=(),
        signal=SignalUtility(),
        information=(),
        linkage=(),
        reidentification=(),
        condition_probes=(),
        trade_off=(),
        examples=(),
        attributes=(replace(sample.attribute(), sessions=()),),
    )
    parts = read(replace(whole, splits=(bare,), gaps={}, conditions={}, strength={}))
    titles = [title for tag, title in parts.headings if tag == "h2"]
    assert titles == ["Attackers", "What counts as hidden", "Conditions"]


def test_nothing_attacked_at_all_is_inconclusive():
    whole = sample.audit()
    parts = (replace(whole.main, attributes=(), left_out={"gender": "one class only"}),)
    html = render(replace(whole, splits=parts))
    assert "Whether gender is hidden is not known: one class only." in html
    assert 'class="status hidden"' not in html


def test_unknown_figures_are_dashes():
    unknown = Estimate(math.nan, math.nan, math.nan, people=24)
    found = sample.attribute()
    found = replace(found, worst=replace(found.worst, auc=unknown, balanced_accuracy=unknown))
    assert "AUC –" in read(sample.audit(found)).text


def test_write_page_replaces_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "new" / "audit.html"
    write_page(sample.audit(bounded()), path)
    assert path.read_text("utf-8") == html_of("hidden")
    monkeypatch.setattr(page, "render", lambda audit: "\ud800")  # cannot be written as UTF-8
    with pytest.raises(UnicodeEncodeError):
        write_page(sample.audit(), path)
    assert path.read_text("utf-8") == html_of("hidden")
    assert [p.name for p in path.parent.iterdir()] == ["audit.html"]
    with pytest.raises(Refusal, match="is a folder"):
        write_page(sample.audit(), tmp_path)


def test_names_that_are_not_unicode_can_be_written():
    assert "a?b" in render(sample.audit(method="a\ud800b"))


def test_runs_of_one_method_get_names_of_their_own():
    runs = [replace(sample.audit(), strength={"snr": k}) for k in (1.0, 4.0)]
    text = Page(render_comparison(runs)).text
    assert "resample (snr=1)" in text
    assert "resample (snr=4)" in text
    text = Page(render_comparison([sample.audit()] * 2)).text
    assert "run 1" in text
    assert "run 2" in text


def test_nothing_to_compare_or_to_sweep_is_refused():
    with pytest.raises(Refusal, match="no audit"):
        render_comparison([])
    with pytest.raises(Refusal, match="no point"):
        render_sweep("a", [], None)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", [0, 1])
def test_text_stands_out_in_light_and_dark(mode):
    block = re.findall(r":root \{(.*?)\}", charts.CSS, re.S)[mode]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    statuses = ("hidden", "not-hidden", "inconclusive")
    pairs = [(name, "paper") for name in ("ink", "soft", "accent", *statuses)]
    pairs += [(name, f"{name}-tint") for name in statuses]
    for text, ground in pairs:
        light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
