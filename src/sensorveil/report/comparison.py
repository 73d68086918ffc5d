"""Several runs on one page, and one run at several strengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sensorveil.audit.results import HIDDEN, Audit, SweepPoint, TradeOff
from sensorveil.errors import Refusal
from sensorveil.report import charts, words
from sensorveil.report.blocks import badge, document, figure, grid, paragraph, section, table
from sensorveil.report.findings import findings, overall, sharpest
from sensorveil.report.markup import Html, element
from sensorveil.report.numbers import (
    UNKNOWN,
    auc,
    counted,
    decimals,
    percent,
    points,
    with_interval,
)
from sensorveil.report.sections import trade_off_plot
from sensorveil.report.words import capital, spoken


@dataclass(frozen=True)
class Difference:
    """Method a minus method b on the same people: the worst attacker's or the kept accuracy."""

    method_a: str
    method_b: str
    attribute: str
    value: float
    low: float
    high: float
    p_value: float


def render_comparison(audits: Sequence[Audit], differences: Sequence[Difference] = ()) -> str:
    """Several runs on one page, a row for each."""
    if not audits:
        raise Refusal("no audit to compare; name at least one")
    named = list(zip(_names(audits), audits, strict=True))
    return document(
        "Comparison of methods",
        element(
            "header",
            paragraph(_about(audits), "eyebrow"),
            element("h1", _headline(named), class_="verdict"),
        ),
        section("methods", "Methods", *_methods(named)),
        section("trade-off", "What hiding costs", *trade_off_plot(named)),
        section("differences", "Differences", *_differences(differences)),
        section("conditions", "Conditions", *_conditions(named)),
    )


def render_sweep(
    title: str,
    points: Sequence[SweepPoint],
    area: float | None,
    ideal: TradeOff | None = None,
) -> str:
    """One run at several strengths: the trade-off curve and its figures.

    `ideal` is the raw kept accuracy and the guessing level, where they are known.
    """
    if not points:
        raise Refusal("the sweep has no point; give a grid of strengths")
    marks = [
        charts.Mark("plain", str(number), words.strengths(point.strength), point.hidden, point.kept)
        for number, point in enumerate(points, 1)
    ]
    if ideal is not None:
        marks.append(charts.Mark("ideal", "ideal", "the ideal", ideal.hidden, ideal.kept))
    best = [m for m in marks if m.kind == "plain"]
    most = max(best, key=lambda mark: mark.kept - mark.hidden)
    sentence = (
        f"Of {counted(len(points), 'strength')}, {most.name} has the largest distance between the"
        f" application ({percent(most.kept)}) and the worst attacker ({percent(most.hidden)})."
    )
    chart = charts.trade_off(
        marks,
        guess=ideal.hidden if ideal else None,
        raw=ideal.kept if ideal else None,
        frontier=True,
    )
    rows = [[mark.label, mark.name, percent(mark.kept), percent(mark.hidden)] for mark in marks]
    return document(
        title,
        element("header", paragraph(title, "eyebrow"), element("h1", sentence, class_="verdict")),
        section(
            "curve",
            "Trade-off over strengths",
            paragraph("Up is more useful, left is more private; the line joins the best points."),
            paragraph(f"Area under the curve: {percent(area)}." if area is not None else None),
            grid(
                figure(chart),
                table(["Mark", "Strength", "Kept", "Worst attacker"], rows, "The points"),
            ),
        ),
    )


def _names(audits: Sequence[Audit]) -> list[str]:
    """A name for each run that no other run has: the method, its strength, then a number."""
    for name in (
        lambda audit: audit.method,
        lambda audit: f"{audit.method} ({words.strengths(audit.strength)})",
    ):
        names = [name(audit) for audit in audits]
        if max(Counter(names).values()) == 1:
            return names
    return [f"{name}, run {number}" for number, name in enumerate(names, 1)]


def _about(audits: Sequence[Audit]) -> str:
    data = words.listed(sorted({audit.dataset for audit in audits}))
    unseen = {words.people_of(audit.main.unseen_people) for audit in audits}
    return f"Comparison of {counted(len(audits), 'run')} on {data} · {'; '.join(sorted(unseen))}"


def _headline(named: Sequence[tuple[str, Audit]]) -> str:
    good = [name for name, audit in named if overall(findings(audit)) == HIDDEN]
    if not good:
        return "None of the methods hides everything that it was to hide."
    verb = "hides" if len(good) == 1 else "hide"
    if len(good) == len(named):
        return f"{capital(words.listed(good))} {verb} everything that was to be hidden."
    rest = (
        "the others do not, or it is not known"
        if len(named) - len(good) > 1
        else ("the other does not, or it is not known")
    )
    return f"{capital(words.listed(good))} {verb} everything that was to be hidden; {rest}."


def _methods(named: Sequence[tuple[str, Audit]]) -> list[Html | None]:
    keep = _in_order(name for _, audit in named for name in audit.keep)
    hide = _in_order(name for _, audit in named for name in audit.hide)
    several = len(hide) > 1
    headers = [
        "Method",
        *(["All hidden"] if several else []),
        *[f"Kept: {spoken(name)}" for name in keep],
    ]
    for name in hide:
        headers += [
            f"Attacker: {spoken(name)}",
            "Guessing",
            "Highest AUC",
            f"Verdict: {spoken(name)}",
        ]
    rows = [
        [
            method,
            *([badge(overall(findings(audit)), short=True)] if several else []),
            *[_kept_cell(audit, name) for name in keep],
            *[cell for name in hide for cell in _hidden_cells(audit, name)],
        ]
        for method, audit in named
    ]
    return [
        table(headers, rows, "Kept: unchanged application. Attacker: the worst of all that tried"),
        *[paragraph(f"{capital(m)}: {audit.summary}", "note") for m, audit in named],
    ]


def _kept_cell(audit: Audit, name: str) -> str:
    found = [kept for kept in audit.main.kept if kept.attribute == name]
    return with_interval(found[0].unchanged) if found else UNKNOWN


def _hidden_cells(audit: Audit, name: str) -> list[str]:
    for finding in findings(audit):
        if finding.attribute == name and finding.found is not None:
            found = finding.found
            return [
                with_interval(found.worst.accuracy)
                + ("" if finding.is_main else f", split {finding.part.split}"),
                percent(found.majority),
                auc(sharpest(found).auc),
                badge(finding.status, short=True),
            ]
        if finding.attribute == name:
            return [UNKNOWN, UNKNOWN, UNKNOWN, badge(finding.status, short=True)]
    return [UNKNOWN, UNKNOWN, UNKNOWN, "not asked for"]


def _differences(differences: Sequence[Difference]) -> list[Html | None]:
    rows = [
        [
            f"{difference.method_a} minus {difference.method_b}",
            spoken(difference.attribute),
            f"{points(difference.value)} ({points(difference.low)} to {points(difference.high)})",
            _p_value(difference.p_value),
        ]
        for difference in differences
    ]
    return [
        table(
            ["Methods", "Attribute", "Difference, points", "p"],
            rows,
            "Paired differences: both methods on the same people",
        )
    ]


def _p_value(value: float) -> str:
    return "below 0.001" if value < 0.001 else decimals(value, 3)


def _conditions(named: Sequence[tuple[str, Audit]]) -> list[Html | None]:
    rows = [
        [
            name,
            audit.dataset,
            audit.protocol,
            f"{audit.main.split}, folds {words.listed([str(f) for f in audit.main.folds])}",
            f"{audit.main.test_windows:,}",
            f"{audit.main.test_people:,}",
            words.listed([str(seed) for seed in audit.seeds]),
            words.strengths(audit.strength),
            "quick" if audit.quick else "full",
            str(audit.conditions.get("date", UNKNOWN)),
            element("code", str(audit.conditions.get("command", UNKNOWN))),
        ]
        for name, audit in named
    ]
    headers = ["Run", "Data", "Protocol", "Split", "Test windows", "Test people", "Seeds"]
    headers += ["Strength", "Audit", "Date", "Command"]
    return [table(headers, rows, "Conditions of each run")]


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
