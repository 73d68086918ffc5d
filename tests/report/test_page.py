"""Pages: what they say, that they need nothing beside themselves, and that all can read them."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import sample

from sensorveil.audit.criterion import CRITERION
from sensorveil.audit.measures import Measured
from sensorveil.audit.results import SignalUtility, SplitAudit, Transitions, TransitionsSeen
from sensorveil.errors import Refusal
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


@cache
def html_of(name):
    return sample.PAGES[name]()


@cache
def page_of(name):
    return Page(html_of(name))


@pytest.mark.parametrize("name", sample.PAGES)
def test_needs_nothing_beside_itself(name):
    parts = page_of(name)
    assert not parts.all("script")
    assert not parts.all("img")
    assert [link["href"] for link in parts.all("link")] == ["data:,"]
    assert not re.search(r"url\(|@import|https?:", html_of(name))
    assert all(not name.startswith("on") for _, a in parts.elements for name in a)


@pytest.mark.parametrize("name", sample.PAGES)
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


@pytest.mark.parametrize("name", sample.PAGES)
def test_percentages_have_one_decimal(name):
    text = page_of(name).text
    assert re.search(r"\d\.\d%", text)
    assert not re.search(r"\d\.\d{2,}%", text)
    assert not re.search(r"\d\.\d{4,}", text)
    assert not {"nan", "None", "Undefined"} & set(re.findall(r"\w+", text))


def test_hostile_names_are_shown_as_they_are_and_never_run():
    evil = sample.EVIL
    assert "<script>alert(1)</script>" in page_of("hostile").text
    compared = render_comparison(
        [sample.hostile()] * 2, [Difference(evil, evil, evil, 0.1, 0.0, 0.2, 0.5)]
    )
    swept = render_sweep(evil, [SweepPoint({evil: 1.0}, 0.9, 0.5)], None)
    for html in (html_of("hostile"), compared, swept):
        assert "<script" not in html


SAID = {
    ("hidden", None): [
        "−1.4 to +2.6",
        "more people could change this",
        "Control: in the same output with a planted leak of 10.0 points",
        "Age: worst attacker 47.0% (44.0 to 50.0) , majority baseline 42.0%",
        "bound: at most 60.0%",
        "right in at most 60.0% of windows on average",
        "like the 500 people counted",
        "On the split paper, with the same people in training and test, the verdict is hidden too",
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
        "Identity (subject). No leak is found in single windows.",
    ],
    ("comparison", None): [
        "Resample hides everything that was to be hidden; the others do not",
        *("79.2%", "7.3% (4.3 to 10.3) , split paper", "inconclusive", "not asked for"),
        *("−21.6 (−25.0 to −18.0) below 0.001", "the ideal", "noise 2", "A, C, ideal"),
        "boosted trees: 96.7% (95.7 to 97.7) , raw 97.2%",
        "99.3% (91.3 to 100.0) , majority baseline 58.3%: all windows of one recording, set network,"
        " leak",
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


def test_the_verdict_comes_first_and_unlisted_attributes_are_folded():
    parts = page_of("hidden")
    assert parts.headings[0] == (
        "h1",
        "Gender is hidden.",
    )
    assert ("h3", "Gender") in parts.headings
    assert "Age" in parts.folded


def test_inconclusive_is_never_dressed_as_good_news():
    header = html_of("inconclusive").split("<nav")[0].split("<header")[1]
    assert 'class="status inconclusive"' in header
    assert 'class="inconclusive"' in header
    for good in ('status hidden"', 'class="hidden"', "var(--hidden)"):
        assert good not in header
    assert html_of("inconclusive").count('class="card inconclusive"') == 1


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
    rest = {
        f.name: () for f in fields(SplitAudit) if isinstance(getattr(whole.main, f.name), tuple)
    }
    rest |= {"folds": (0,), "attributes": (replace(sample.attribute(), sessions=()),)}
    bare = replace(whole.main, signal=SignalUtility(), **rest)
    parts = read(replace(whole, splits=(bare,), gaps={}, conditions={}, strength={}))
    titles = [title for tag, title in parts.headings if tag == "h2"]
    shown = ["From whom?", "All measures", "Attackers", "What counts as hidden", "Conditions"]
    assert titles == shown


def test_nothing_attacked_at_all_is_inconclusive():
    whole = sample.audit()
    parts = (replace(whole.main, attributes=(), left_out={"gender": "one class only"}),)
    html = render(replace(whole, splits=parts))
    assert "Whether gender is hidden is not known." in html
    assert "One class only." in html
    assert 'class="status hidden"' not in html


def test_unknown_figures_are_dashes():
    html = render(sample.unknown())
    assert "AUC –" in Page(html).text
    assert not re.search(r"\bnan\b", html)


def test_write_page_replaces_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "new" / "audit.html"
    write_page(sample.audit(sample.bounded()), path)
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


def test_registered_measures_are_shown() -> None:
    audit = sample.audit()
    (first, *others) = audit.splits
    measures = (Measured("range kept", "1 is best", 0.25), Measured("steps", "0 is best", None))
    page = render(replace(audit, splits=(replace(first, measures=measures), *others)))
    assert "range kept" in page
    assert "0.25" in page
    assert "1 is best" in page
    assert "range kept" not in render(audit)


def rows(html, heading):
    """The rows of the tables of a section: the texts of their cells."""
    (part,) = re.findall(rf"<h2>{re.escape(heading)}</h2>(.*?)</section>", html, re.S)
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in part.split("<tr>")[1:]]
    return [[re.sub("<[^>]+>", "", cell).strip() for cell in row] for row in found]


def test_each_application_has_a_row_then_mean_and_worst() -> None:
    shown = [row[:3] for row in rows(html_of("hidden"), "Applications and the signal")]
    assert shown[1:5] == [
        ["residual network", "99.0% (98.0 to 100.0)", "98.7% (97.7 to 99.7)"],
        ["boosted trees", "97.2% (96.2 to 98.2)", "96.7% (95.7 to 97.7)"],
        ["mean", "98.1% (97.1 to 99.1)", "97.7% (96.7 to 98.7)"],
        ["worst: boosted trees", "97.2% (96.2 to 98.2)", "96.7% (95.7 to 97.7)"],
    ]


def test_what_is_left_of_the_signal_has_a_row_and_a_sentence_each() -> None:
    shown = [row for row in rows(html_of("hidden"), "Applications and the signal") if len(row) == 4]
    shown = [row for row in shown if row[0] != "Signal"]
    assert [row[:3] for row in shown] == [
        ["Dominant frequency, mean error", "0.41 Hz", "0"],
        ["Dominant frequency, correlation with raw", "0.03", "1"],
        ["Energy, mean error of its logarithm", "0.52", "0"],
        ["Energy, correlation with raw", "0.04", "1"],
        ["Distance of the power spectra", "0.06", "0"],
        ["Power in bands of frequency, correlation with raw", "0.11", "1"],
        ["Cadence of walking, median error", "5.8 steps a minute", "0"],
        ["The same, for the median of all other people", "3.9 steps a minute", "–"],
        ["Cadence of walking, correlation with raw", "0.02", "1"],
        ["Step count on walking, mean error", "18.0%", "0%"],
        ["Step count of a recording, median error", "4.3%", "0%"],
        ["Time by intensity, mean error", "16.1 points", "0"],
    ]
    for *_, sentence in shown:
        assert sentence.endswith(".")
    assert len(shown) == len(fields(SignalUtility))


def test_measures_of_the_signal_that_were_not_taken_have_no_row() -> None:
    whole = sample.audit()
    still = replace(whole.main, signal=SignalUtility(energy_error=0.5))
    text = Page(render(replace(whole, splits=(still,)))).text
    assert "Energy, mean error" in text
    for absent in ("Cadence", "Step count", "intensity", "Dominant frequency", "Power in bands"):
        assert absent not in text


def test_transitions_are_shown_where_recordings_have_several_classes() -> None:
    assert "Off by" not in html_of("hidden")
    seen = Transitions(8.0, TransitionsSeen(8.4, 0.97, 0.2), TransitionsSeen(14.25, 0.81, None))
    whole = sample.audit()
    kept = (replace(sample.kept(), transitions=seen),)
    html = render(replace(whole, splits=(replace(whole.main, kept=kept),)))
    shown = rows(html, "Applications and the signal")
    assert ["raw data", "8.4", "97.0%", "0.2 s"] in shown
    assert ["the output", "14.2", "81.0%", "–"] in shown
    assert "has 8.0 changes on average" in " ".join(Page(html).text.split())


def test_all_measures_of_an_attribute_stand_in_one_table() -> None:
    _, *shown = rows(html_of("not hidden"), "All measures")
    worst, small = "boosted trees, semi-informed", "below 0.001"
    assert shown == [
        ["Accuracy on single windows", "79.2% (76.2 to 82.2)", small, "57.0%", "95.0% (92.0 to 98.0)", worst],
        ["Advantage, points", "+22.2 (+20.2 to +24.2)", small, "0.0", "+38.0 (+36.0 to +40.0)", "the same attacker"],
        ["AUC", "0.870 (0.850 to 0.890)", small, "0.500", "0.980", "cnn, semi-informed"],
        ["True positive rate at 1% false positives", "5.6% (5.1 to 6.1)", "–", "1.0%", "9.5% (9.0 to 10.0)", worst],
        ["Accuracy on several windows", "99.3% (91.3 to 100.0)", "0.002", "58.3%", "–", "all windows of one recording, 96 cases; set network, semi-informed"],
        ["Accuracy on several looks", "89.3% (81.3 to 97.3)", "0.002", "58.3%", "–", "20 obfuscations of one window, 1,000 cases; set network, semi-informed"],
        ["Estimate without attackers", "57.4% (54.4 to 60.4)", "–", "57.0%", "93.0% (90.0 to 96.0)", "nearest neighbours on learnt features"],
        ["Cross-fitted advantage, points", "+21.8", "–", "0.0", "–", "the best attacker on half of the people, on the others"],
        ["Mutual information, bits", "0.02", "–", "0.00", "0.61", "nearest neighbours; at most 0.99"],
    ]  # fmt: skip


def test_measures_that_were_not_taken_have_no_row() -> None:
    found = replace(sample.attribute(sessions=()), bayes=None)
    attacks = tuple(replace(one, tpr_at_1pct=None) for one in found.attacks)
    whole = sample.audit(replace(found, attacks=attacks))
    bare = replace(whole, splits=(replace(whole.main, information=()),))
    shown = [row[0] for row in rows(render(bare), "All measures")]
    assert shown[1:] == [
        "Accuracy on single windows",
        "Advantage, points",
        "AUC",
        "Cross-fitted advantage, points",
    ]


def test_attacks_on_several_windows_have_attacker_threat_model_and_p_value() -> None:
    shown = rows(html_of("not hidden"), "Several windows")
    assert len(shown) == 11
    assert shown[3][0] == "20 windows of one recording"
    assert shown[3][3:7] == ["0.002: leak", "set network, learns", "semi-informed", "96"]
    assert shown[2][4] == "boosted trees, adds up"
    shown = rows(html_of("hidden"), "Several looks at one window")
    assert [row[0] for row in shown[1:]] == [
        "1 obfuscation of one window",
        "5 obfuscations of one window",
        "20 obfuscations of one window",
    ]
    assert {row[3] for row in shown[1:]} == {"0.620"}


def test_donors_have_a_verdict_of_their_own_beside_the_wearers() -> None:
    header = html_of("copies").split("<nav")[0]
    assert header.count('class="status hidden"') == 1
    assert header.count('class="status not-hidden"') == 1
    assert "Wearers" in header
    assert "are not hidden: 37 of 2000 windows of the output are training windows" in header
    for absent in ("onors", "Wearers"):
        assert absent not in html_of("hidden").split("<nav")[0]


def test_what_was_measured_about_donors() -> None:
    near = "Output whose nearest window is a training window"
    assert [row[:4] for row in rows(html_of("donors"), "Donors")[1:]] == [
        ["Copies of training windows", "0", "0", "–"],
        [near, "50.4% (49.4 to 51.4)", "50.0%", "0.310"],
        ["Excess of that share, points", "+0.4 (−0.6 to +1.4)", "0.0", "–"],
        ["Control: the excess where a fifth of the output is training windows, points", "+10.0 (+8.0 to +12.0)", "0.0", "–"],
        ["Membership, AUC", "0.502 (0.492 to 0.512)", "0.500", "–"],
        ["Membership, true positive rate at 1% false positives", "1.2% (0.8 to 1.6)", "1.0%", "–"],
        ["Membership, true positive rate at 0.1% false positives", "0.1% (0.0 to 3.1)", "0.1%", "–"],
    ]  # fmt: skip
    assert "About donors: " in page_of("donors").section("What counts as hidden")
    assert "About donors" not in page_of("hidden").text


def test_what_was_not_measured_about_donors_has_no_row_or_a_reason() -> None:
    assert [row[:2] for row in rows(html_of("copies"), "Donors")] == [
        ["Measure", "Value"],
        ["Copies of training windows", "37"],
        ["Not asked", "Why"],
        ["Membership", "A quick audit trains no models."],
    ]


def test_too_few_windows_for_one_in_a_thousand_are_said() -> None:
    whole = sample.with_donors(sample.audit())
    member = replace(whole.main.donors.membership, tpr_at_01pct=None)
    donors = replace(whole.main.donors, membership=member)
    page = render(replace(whole, splits=(replace(whole.main, donors=donors),)))
    assert rows(page, "Donors")[-1][1:] == ["–", "0.1%", "–", "too few windows"]


def test_what_was_not_asked_is_on_the_first_screen_and_has_a_reason() -> None:
    assert "Not asked : lazy attackers." in page_of("donors").text.replace("asked:", "asked :")
    assert rows(html_of("donors"), "What was not asked")[1:] == [
        ["Lazy attackers", "No second model is trained in a quick audit."]
    ]
    assert "not-asked" not in html_of("hidden")
