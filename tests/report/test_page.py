from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise

import pytest
import sample

from sensorveil.audit.results import SignalUtility, TradeOff
from sensorveil.errors import Refusal
from sensorveil.measures.estimate import Estimate
from sensorveil.methods.seal_bound import Bound
from sensorveil.report import (
    Difference,
    SweepPoint,
    page,
    render,
    render_comparison,
    render_sweep,
    write_page,
)

ALONE = {"meta", "link", "br", "hr"}


class Page(HTMLParser):
    """A page taken apart; tags that do not close as they opened are an error."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.open, self.said, self.headings = [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.said.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append((self.open[-1], data))

    @property
    def text(self):
        return "".join(self.said)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def comparison():
    audits = [
        sample.audit(),
        sample.audit(sample.gender_found_out(), method="code"),
        sample.audit(sample.gender_void(), method="blinder"),
    ]
    difference = Difference("resample", "code", "gender", -0.216, -0.25, -0.18, 0.0004)
    return render_comparison(audits, [difference])


def sweep():
    grid = [SweepPoint({"keep": k}, 0.9 + 0.01 * k, 0.6 + 0.05 * k) for k in (1, 4, 7)]
    return render_sweep("code on motionsense", grid, 0.8132, TradeOff("ideal", 0.98, 0.57))


def bounded():
    bound = Bound("gender", 500, 84, 0.57, 0.58, 0.6, 0.07, 0.986)
    return replace(sample.attribute(), bound=bound)


def test_a_bound_stands_beside_the_attackers():
    with_bound, without = (Page(render(sample.audit(a))) for a in (bounded(), sample.attribute()))
    for page_, said in ((with_bound, True), (without, False)):
        assert ("nobody above 60.0%" in page_.text) == said
        assert ("one of 84 codes" in page_.text) == said


ALL = {
    "hidden": lambda: render(sample.audit()),
    "not hidden": lambda: render(sample.audit(sample.gender_found_out())),
    "void": lambda: render(sample.audit(sample.gender_void())),
    "two": lambda: render(sample.two_hidden()),
    "bound": lambda: render(sample.audit(bounded())),
    "hostile": lambda: render(sample.hostile()),
    "comparison": comparison,
    "sweep": sweep,
}


@pytest.fixture(params=ALL, scope="module")
def html(request):
    return ALL[request.param]()


def test_needs_nothing_beside_itself(html):
    parts = Page(html)
    assert not parts.all("script")
    assert not parts.all("img")
    assert [link["href"] for link in parts.all("link")] == ["data:,"]
    assert not re.search(r"url\(|@import|https?:", html)
    assert all(not name.startswith("on") for _, a in parts.elements for name in a)


def test_is_accessible(html):
    parts = Page(html)
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
    assert {a["href"].lstrip("#") for a in parts.all("a")} <= set(anchors)


def test_percentages_have_one_decimal(html):
    text = Page(html).text
    assert re.search(r"\d\.\d%", text)
    assert not re.search(r"\d\.\d{2,}%", text)
    assert not re.search(r"\d\.\d{4,}", text)
    assert "nan" not in re.findall(r"\w+", text)


def test_hostile_names_are_shown_as_they_are_and_never_run():
    html = render(sample.hostile())
    assert "<script" not in html
    assert "<script>alert(1)</script>" in Page(html).text
    compared = render_comparison([sample.hostile()] * 2)
    assert "<script" not in compared
    evil = '"><script>'
    assert "<script" not in render_sweep(evil, [SweepPoint({evil: 1.0}, 0.9, 0.5)], None)
    assert "<script" not in render_comparison(
        [sample.audit()], [Difference(evil, evil, evil, 0.1, 0.0, 0.2, 0.5)]
    )


def test_sections_come_in_order():
    titles = [title for tag, title in Page(render(sample.audit())).headings if tag == "h2"]
    assert titles == [title for _, title, _ in page.SECTIONS]


def test_the_verdict_comes_first_with_its_interval_and_its_control():
    parts = Page(render(sample.audit()))
    assert parts.headings[0] == (
        "h1",
        "Gender is hidden: the strongest attacker, retrained on this very output, is right in 57.6%"
        " of windows; guessing the more common class is right in 57.0%.",
    )
    first = parts.text.split("What survives")[0]
    for said in ("−1.4 to +2.6", "more people could change this", "planted leak of 10.0 points"):
        assert said in first


def test_void_is_never_dressed_as_good_news():
    html = render(sample.audit(sample.gender_void(), hide=("gender",)))
    header = html.split("<nav")[0].split("<header")[1]
    assert "inconclusive: we do not know" in header
    assert 'class="card void"' in header
    for good in ('class="status hidden"', 'class="card hidden"', 'class="hidden"', "dot hidden"):
        assert good not in header
    assert "nothing here proves" in Page(html).text


def test_unlisted_attributes_are_folded_and_hidden_ones_are_not():
    html = render(sample.audit())
    folded = "".join(re.findall(r"<details>.*?</details>", html, re.S))
    assert "<h3>Age</h3>" in folded
    assert "<h3>Gender</h3>" not in folded.split("The verdicts on")[0]


def test_the_gap_between_the_splits_is_printed():
    text = Page(render(replace(sample.audit(), gaps={"gender": 0.123}))).text
    assert "For gender the worst attacker is 12.3 points higher on the second split." in text
    assert "+12.3" in text


def test_identity_that_unseen_people_rule_out_comes_from_the_other_split():
    text = Page(render(sample.two_hidden())).text
    assert "Gender and who the person is (subject) are hidden." in text
    assert "Measured on the split paper, with the same people in training and test" in text
    assert "matched to the right one of the people compared (raw, 24 people in all)" in text
    assert "on the split subject: hidden, since sessions are matched by chance" in text


def test_another_verdict_on_another_split_stands_beside_the_first():
    whole = sample.audit()
    other = replace(whole.splits[1], attributes=(sample.gender_found_out(),))
    header = render(replace(whole, splits=(whole.main, other))).split("<nav")[0]
    assert "Measured on the split paper, with the same people in training and test" in header
    assert "on the split subject: hidden, since " in header
    assert "not hidden" in header
    assert "On the split subject" in header
    agreed = render(whole).split("<nav")[0]
    assert "On the split paper" in agreed
    assert "hidden too" in agreed


def test_conditions_are_all_there():
    text = Page(render(sample.audit())).text.split("Conditions")[-1]
    for said in ("sensorveil audit runs/a", "2.13.0", "2026-11-03", "3f1c9a2e", "0, 1 and 2"):
        assert said in text
    assert "13,381" in text
    assert "40,143" in text


def test_trade_off_has_the_run_the_baselines_and_the_ideal():
    text = Page(render(sample.audit())).text.split("What hiding costs")[-1].split("Attackers")[0]
    for said in ("this run", "noise 0.5", "downsample 4", "the ideal"):
        assert said in text


def test_a_run_among_its_own_trade_off_points_is_measured_as_they_are():
    text = Page(render(sample.audit(method="none"))).text
    part = text.split("What hiding costs")[-1].split("Six kinds")[0]
    assert part.count("none: kept") == 1
    assert "none: kept 98.1%, attacker 98.3%" in part  # as the baselines, not the ladder's 57.6%
    assert "one quick attacker for all points" in part
    other = Page(render(sample.audit())).text.split("What hiding costs")[-1].split("Six kinds")[0]
    assert "resample: kept 97.7%, attacker 57.6%" in other
    assert "the worst attacker of each run" in other


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
    parts = Page(render(replace(whole, splits=(bare,), gaps={}, conditions={}, strength={})))
    titles = [title for tag, title in parts.headings if tag == "h2"]
    assert titles == ["Attackers", "What counts as hidden", "Conditions"]


def test_nothing_attacked_at_all_is_void():
    whole = sample.audit()
    parts = (replace(whole.main, attributes=(), left_out={"gender": "one class only"}),)
    html = render(replace(whole, splits=parts))
    assert "Whether gender is hidden is not known: one class only." in html
    assert 'class="status hidden"' not in html


def test_unknown_figures_are_dashes():
    unknown = Estimate(math.nan, math.nan, math.nan, people=24)
    found = sample.attribute()
    found = replace(found, worst=replace(found.worst, auc=unknown, balanced_accuracy=unknown))
    text = Page(render(sample.audit(found))).text
    assert "AUC –" in text


def test_quick_audits_say_so():
    assert "quick audit" in render(replace(sample.audit(), quick=True)).split("<nav")[0]
    assert "quick audit" not in render(sample.audit())


def test_write_page_replaces_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "new" / "audit.html"
    write_page(sample.audit(), path)
    assert path.read_text("utf-8") == render(sample.audit())
    monkeypatch.setattr(page, "render", lambda audit: "\ud800")  # cannot be written as UTF-8
    with pytest.raises(UnicodeEncodeError):
        write_page(sample.audit(), path)
    assert path.read_text("utf-8") == render(sample.audit())
    assert [p.name for p in path.parent.iterdir()] == ["audit.html"]
    with pytest.raises(Refusal, match="is a folder"):
        write_page(sample.audit(), tmp_path)


def test_names_that_are_not_unicode_can_be_written(tmp_path):
    write_page(sample.audit(method="a\ud800b"), tmp_path / "a.html")


def test_comparison_has_a_row_for_each_run():
    text = Page(comparison()).text
    assert "Resample hides everything that was to be hidden; the others do not" in text
    for said in ("79.2%", "57.6%", "inconclusive", "−21.6", "below 0.001", "the ideal", "noise 2"):
        assert said in text


def test_runs_of_one_method_get_names_of_their_own():
    runs = [replace(sample.audit(), strength={"keep": k}) for k in (1.0, 4.0)]
    text = Page(render_comparison(runs)).text
    assert "resample (keep=1)" in text
    assert "resample (keep=4)" in text
    text = Page(render_comparison([sample.audit()] * 2)).text
    assert "run 1" in text
    assert "run 2" in text


def test_nothing_to_compare_or_to_sweep_is_refused():
    with pytest.raises(Refusal, match="no audit"):
        render_comparison([])
    with pytest.raises(Refusal, match="no point"):
        render_sweep("a", [], None)


def test_sweep_lists_every_strength_and_the_area():
    text = Page(sweep()).text
    for said in ("keep=1", "keep=4", "keep=7", "Area under the curve: 81.3%", "the ideal"):
        assert said in text


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", [0, 1])
def test_text_stands_out_in_light_and_dark(mode):
    style = resources.files("sensorveil.report").joinpath("style.css").read_text("utf-8")
    block = re.findall(r":root \{(.*?)\}", style, re.S)[mode]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    pairs = [(name, "paper") for name in ("ink", "soft", "accent", "hidden", "open", "void")]
    pairs += [(name, f"{name}-tint") for name in ("hidden", "open", "void")]
    for text, ground in pairs:
        light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)
