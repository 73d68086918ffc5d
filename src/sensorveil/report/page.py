"""An audit, a comparison or a sweep as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sensorveil.audit.criterion import CRITERION, DONOR_CRITERION, point_windows
from sensorveil.audit.results import (
    HIDDEN,
    INCONCLUSIVE,
    NOT_HIDDEN,
    RAW,
    THREAT_MODELS,
    AttributeAudit,
    Audit,
    SessionPoint,
    SplitAudit,
    SweepPoint,
    TradeOff,
)
from sensorveil.errors import Refusal
from sensorveil.files import written_file
from sensorveil.report import charts, findings, numbers, text, verdicts
from sensorveil.report.charts import Chart, Mark
from sensorveil.report.numbers import UNKNOWN
from sensorveil.report.signal_rows import signal_rows
from sensorveil.statistics import Estimate


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


def render(audit: Audit) -> str:
    """The page of one audit; a section with nothing to show is left out."""
    return _render(
        "audit.html.j2",
        title=f"Audit of {audit.method} on {audit.dataset}",
        audit=audit,
        found=findings.findings(audit),
        trade_off=trade_off([(audit.method, audit)]),
    )


def write_page(audit: Audit, path: Path | str) -> None:
    """Writes the page of one audit in one step: never half a page."""
    page = render(audit)
    with written_file(path) as temporary:
        temporary.write_text(page, "utf-8")


def render_comparison(audits: Sequence[Audit], differences: Sequence[Difference] = ()) -> str:
    """Several runs on one page, a row for each."""
    if not audits:
        raise Refusal("no audit to compare; name at least one")
    named = list(zip(_names(audits), audits, strict=True))
    return _render(
        "comparison.html.j2",
        title="Comparison of methods",
        headline=_headline(named),
        runs=[(name, audit, findings.findings(audit)) for name, audit in named],
        keep=_in_order(name for audit in audits for name in audit.keep),
        hide=_in_order(name for audit in audits for name in audit.hide),
        differences=differences,
        trade_off=trade_off(named),
    )


def render_sweep(
    title: str, points: Sequence[SweepPoint], area: float | None, ideal: TradeOff | None = None
) -> str:
    """One run at several strengths: the trade-off curve and its figures.

    `ideal` is the raw kept accuracy and the majority baseline, where they are known.
    """
    if not points:
        raise Refusal("the sweep has no point; give a grid of strengths")
    marks = [
        Mark("baseline", str(number), text.strengths(one.strength), one.hidden, one.kept)
        for number, one in enumerate(points, 1)
    ]
    best = max(marks, key=lambda mark: mark.kept - mark.hidden)
    if ideal is not None:
        marks.append(Mark("ideal", "ideal", "the ideal", ideal.hidden, ideal.kept))
    majority, raw = (ideal.hidden, ideal.kept) if ideal else (None, None)
    chart = charts.trade_off(marks, majority, raw, frontier=True)
    return _render(
        "sweep.html.j2", title=title, points=points, marks=marks, best=best, area=area, chart=chart
    )


@dataclass(frozen=True)
class TradeOffPlot:
    """What a page shows about the price of hiding one attribute."""

    kept: str
    hidden: str
    split: str
    marks: Sequence[Mark]
    chart: Chart
    same_attacker: bool
    """Whether one quick attacker measured all points, or the worst of each run its own."""


def trade_off(named: Sequence[tuple[str, Audit]]) -> TradeOffPlot | None:
    """Runs by name, with the plain baselines of all and the ideal point of the first."""
    first = named[0][1]
    measured = [point.attribute for point in first.main.trade_off if point.attribute]
    for finding in findings.findings(first):
        if finding.found is None or not finding.split.kept:
            continue
        if not measured or finding.attribute in measured:
            break
    else:
        return None
    kept, majority = finding.split.kept[0], finding.found.majority
    marks = [
        *_marks(named, finding.attribute, finding.split.split),
        Mark("ideal", "ideal", "the ideal", majority, kept.raw.value),
    ]
    return TradeOffPlot(
        kept.attribute,
        finding.attribute,
        finding.split.split,
        marks,
        charts.trade_off(marks, majority, kept.raw.value),
        all(any(p.name == a.method for p in a.main.trade_off) for _, a in named),
    )


def _marks(named: Sequence[tuple[str, Audit]], attribute: str, split: str) -> list[Mark]:
    """The runs and the plain baselines on one split.

    A run's own point among its trade-off points was measured by the same attacker as the baselines,
    so it is drawn where there is one; otherwise the worst of all attackers stands for the run.
    """
    parts = [(n, audit, part) for n, audit in named for part in audit.splits if part.split == split]
    runs = [
        (name, *_place(audit.method, part, found))
        for name, audit, part in parts
        for found in part.attributes
        if found.attribute == attribute and part.kept
    ]
    # One run is named beside its point; the names of many would not fit there, letters do.
    labels = ["this run"] if len(named) == 1 else [_letter(number) for number in range(len(runs))]
    drawn = {audit.method for _, audit in named}
    points = [point for _, _, part in parts for point in part.trade_off]
    plain = {point.name: point for point in points if point.name not in drawn}
    return [
        *[Mark("run", label, *run) for label, run in zip(labels, runs, strict=False)],
        *[
            Mark("baseline", str(number), point.name, point.hidden, point.kept)
            for number, point in enumerate(plain.values(), 1)
        ],
    ]


def _place(method: str, part: SplitAudit, found: AttributeAudit) -> tuple[float, float]:
    for point in part.trade_off:
        if point.name == method:
            return point.hidden, point.kept
    return found.worst.accuracy.value, part.kept[0].unchanged.value


def _letter(number: int) -> str:
    """A, B, ... Z, A1, B1, ..."""
    again, letter = divmod(number, 26)
    return f"{chr(ord('A') + letter)}{again or ''}"


def _names(audits: Sequence[Audit]) -> list[str]:
    """A name for each run that no other run has: the method, its strength, then a number."""
    names = [audit.method for audit in audits]
    if len(set(names)) < len(names):
        names = [f"{audit.method} ({text.strengths(audit.strength)})" for audit in audits]
    if max(Counter(names).values()) > 1:
        names = [f"{name}, run {number}" for number, name in enumerate(names, 1)]
    return names


def _headline(named: Sequence[tuple[str, Audit]]) -> str:
    good = [name for name, a in named if findings.overall(findings.findings(a)) == HIDDEN]
    if not good:
        return "None of the methods hides everything that it was to hide."
    said = text.capital(text.listed(good)) + (" hides" if len(good) == 1 else " hide")
    said += " everything that was to be hidden"
    others = len(named) - len(good)
    if others:
        said += f"; the other{'s do' if others > 1 else ' does'} not, or it is not known"
    return f"{said}."


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _flat(conditions: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Conditions within conditions as one list of names and values."""
    rows: list[tuple[str, str]] = []
    for name, value in conditions.items():
        called = f"{before}{name}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{called}, ")
        elif isinstance(value, list | tuple):
            rows.append((called, ", ".join(str(item) for item in value)))
        else:
            rows.append((called, str(value)))
    return rows


def _render(template: str, **content: Any) -> str:
    drawn = count(1)

    def picture(chart: Chart) -> Markup:
        return Markup(chart.svg(next(drawn)))

    page = _ENVIRONMENT.get_template(template).render(picture=picture, **content)
    # A lone surrogate (from an undecodable file name) could not be written as UTF-8.
    return page.encode("utf-8", "replace").decode("utf-8")


def _soft_interval(write: Callable[[Estimate], str]) -> Callable[[Estimate | None], Markup]:
    """A value and its interval may stand on two lines, each whole; the interval is softer."""

    def written(estimate: Estimate | None) -> Markup:
        value, bracket, interval = (UNKNOWN if estimate is None else write(estimate)).partition(
            " ("
        )
        soft = Markup(' <span class="interval">({}</span>').format(interval)
        return escape(value) + (soft if bracket else "")

    return written


def _session_charts(
    found: AttributeAudit, points: Sequence[SessionPoint], name: str
) -> list[Chart]:
    """A chart for each group of windows."""
    drawn = []
    for _, some in groupby(points, key=lambda point: point.group):
        own = list(some)
        ways = [charts.ADDS_UP if findings.adds_up(found, one) else one.attacker for one in own]
        drawn.append(charts.session_curve(own, ways, name))
    return drawn


_ENVIRONMENT = Environment(
    loader=PackageLoader("sensorveil.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "percent": numbers.percent,
    "points": numbers.points,
    "decimals": numbers.decimals,
    "p_value": numbers.p_value,
    "count": "{:,}".format,
    "interval": _soft_interval(numbers.with_interval),
    "points_interval": _soft_interval(numbers.points_with_interval),
    "auc": _soft_interval(numbers.auc),
    "spoken": text.spoken,
    "strengths": text.strengths,
    "listed": lambda values: text.listed([str(value) for value in values]),
    # Jinja's own capitalize would make the rest of the sentence small.
    "capital": text.capital,
    "name": lambda attribute: text.capital(text.spoken(attribute)),
}
_ENVIRONMENT.globals |= {
    "text": text,
    "point_windows": point_windows,
    "charts": charts,
    "findings": findings,
    "numbers": numbers,
    "session_charts": _session_charts,
    "signal_rows": signal_rows,
    "verdicts": verdicts,
    "flat": _flat,
    "nan": math.nan,
    "style": Markup(charts.CSS),
    "criterion": CRITERION,
    "donor_criterion": DONOR_CRITERION,
    "threat_models": THREAT_MODELS,
    "RAW": RAW,
    "HIDDEN": HIDDEN,
    "NOT_HIDDEN": NOT_HIDDEN,
    "INCONCLUSIVE": INCONCLUSIVE,
}
