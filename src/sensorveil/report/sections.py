"""The sections of an audit's page that judge: verdict, what survives, trade-off, attackers."""

from __future__ import annotations

from collections.abc import Sequence

from sensorveil.audit.results import (
    HIDDEN,
    IDENTITY,
    INCONCLUSIVE,
    NOT_HIDDEN,
    THREAT_MODELS,
    Attack,
    AttributeAudit,
    Audit,
    SignalUtility,
    SplitAudit,
)
from sensorveil.report import charts, words
from sensorveil.report.blocks import badge, figure, folded, grid, paragraph, table
from sensorveil.report.charts import STATUS_CLASS, symbol
from sensorveil.report.findings import Finding, findings, overall, raw_level
from sensorveil.report.markup import Html, element, joined
from sensorveil.report.numbers import (
    UNKNOWN,
    auc,
    counted,
    decimals,
    percent,
    points_with_interval,
    with_interval,
)
from sensorveil.report.words import capital, spoken


def verdict(audit: Audit) -> Html:
    """The first screen: one sentence, one picture, and from whom."""
    found = findings(audit)
    about = (
        f"Audit of {audit.method} on {audit.dataset} · {words.people_of(audit.main.unseen_people)}"
    )
    kept = [paragraph(words.kept_sentence(part), "lead") for part in audit.main.kept]
    several = len(found) > 1
    cards = element(
        "div",
        *[_card(finding, audit, several) for finding in found],
        class_="cards several" if several else "cards",
    )
    return element(
        "header",
        paragraph(about, "eyebrow"),
        badge(overall(found)),
        element("h1", words.headline(found), class_="verdict"),
        *kept,
        paragraph(_quick(audit), "warning"),
        cards,
    )


def _quick(audit: Audit) -> str | None:
    if not audit.quick:
        return None
    return "A quick audit: fewer and weaker attackers. Run it in full before relying on it."


def _card(finding: Finding, audit: Audit, several: bool) -> Html:
    found = finding.found
    title = element("h2", capital(spoken(finding.attribute)), " ", badge(finding.status))
    kind = f"card {STATUS_CLASS[finding.status]}"
    sentence = paragraph(words.attribute_sentence(finding)) if several else None
    if found is None:
        return element(
            "article", element("div", title, sentence, _links(finding, audit)), class_=kind
        )
    elsewhere = None
    if not finding.is_main:
        elsewhere = (
            f"Measured on the split {finding.part.split}, with"
            f" {words.people_of(finding.part.unseen_people)}; on the split {audit.main.split}:"
            f" {finding.elsewhere.rstrip('.')}."
        )
    return element(
        "article",
        element("div", title if several else None, sentence, figure(strip(found))),
        element(
            "div",
            *_from_whom(found),
            _links(finding, audit),
            paragraph(elsewhere),
            *[paragraph(said, "note") for said in words.other_splits(audit, finding)],
            paragraph(words.interval_note(found), "note"),
            paragraph(words.control_note(found), "note"),
            paragraph(f"By the rule: {found.verdict.reason.rstrip('.')}.", "note"),
        ),
        class_=kind,
    )


def _from_whom(found: AttributeAudit) -> list[Html | None]:
    says = {HIDDEN: "hidden from ", NOT_HIDDEN: "found out by ", INCONCLUSIVE: "not known for "}
    entries = [_signed(status, says[status] + who) for status, who in words.from_whom(found)]
    session = words.worst_session(found.sessions)
    if session is not None and found.verdict.status == NOT_HIDDEN:
        added = f"found out when windows add up: {words.by_session(session)}"
        entries.append(_signed(NOT_HIDDEN, added))
    asked = paragraph("From whom, looking at single windows?")
    return [asked, element("ul", *entries, class_="whom")]


def _signed(status: str, said: str) -> Html:
    return element("li", symbol(status), element("span", said), class_=STATUS_CLASS[status])


def _links(finding: Finding, audit: Audit) -> Html | None:
    """Identity is also a matter of linking sessions."""
    if finding.attribute != IDENTITY:
        return None
    return joined([paragraph(words.linkage_sentence(link)) for link in audit.main.linkage])


def strip(found: AttributeAudit) -> Html:
    """The picture of the verdict about one attribute."""
    raw = raw_level(found)
    return charts.strip(
        found.verdict.status,
        found.majority,
        found.worst.accuracy,
        raw.accuracy.value if raw else None,
        capital(spoken(found.attribute)),
    )


def survives(audit: Audit) -> list[Html | None]:
    """What an application can still read, and what is left of the signal."""
    rows = [
        [
            capital(spoken(kept.attribute)),
            percent(kept.majority),
            with_interval(kept.raw),
            with_interval(kept.unchanged),
            with_interval(kept.retrained),
            with_interval(kept.retrained_on_raw),
            with_interval(kept.unchanged_f1),
            with_interval(kept.retrained_f1),
        ]
        for kept in audit.main.kept
    ]
    headers = ["Kept", "Guessing", "Raw", "Unchanged", "Retrained", "Back", "F1 unch.", "F1 retr."]
    return [
        table(headers, rows, "Share of windows in which the application is right (95% interval)"),
        paragraph(
            "Unchanged: the application's model, trained on raw data, reads the output. Retrained:"
            " it is trained on the output too. Back: it is trained on the output and reads raw"
            " data. F1 is the mean over classes.",
            "note",
        )
        if rows
        else None,
        table(["Signal", "Value", "Best"], _signal_rows(audit.main.signal), "The signal itself"),
    ]


def _signal_rows(signal: SignalUtility) -> list[list[str]]:
    rows: list[tuple[str, float | None, str, str]] = [
        ("Dominant frequency, mean error", signal.frequency_error, " Hz", "0"),
        ("Dominant frequency, correlation with raw", signal.frequency_correlation, "", "1"),
        ("Energy, mean error of its logarithm", signal.energy_error, "", "0"),
        ("Energy, correlation with raw", signal.energy_correlation, "", "1"),
        ("Distance of the power spectra", signal.spectrum_distance, "", "0"),
    ]
    shown = [[what, decimals(v) + unit, best] for what, v, unit, best in rows if v is not None]
    if signal.step_error is not None:
        shown.append(["Step count on walking, mean error", percent(signal.step_error), "0%"])
    return shown


def trade_off(audit: Audit) -> list[Html | None]:
    """This run, the plain baselines and the ideal point in one plot."""
    return trade_off_plot([(audit.method, audit)])


def trade_off_plot(named: Sequence[tuple[str, Audit]]) -> list[Html | None]:
    """Runs by name, with the plain baselines of all and the ideal point of the first."""
    points = [p.attribute for p in named[0][1].main.trade_off if p.attribute]
    target = next(
        (
            f
            for f in findings(named[0][1])
            if f.found and f.part.kept and f.attribute in (points or [f.attribute])
        ),
        None,
    )
    if target is None or target.found is None:
        return []
    kept = target.part.kept[0]
    ideal = charts.Mark("ideal", "ideal", "the ideal", target.found.majority, kept.raw.value)
    marks = [*_marks(named, target.attribute, target.part.split), ideal]
    rows = [[mark.label, mark.name, percent(mark.kept), percent(mark.hidden)] for mark in marks]
    same = all(any(p.name == a.method for p in a.main.trade_off) for _, a in named)
    attacker = "one quick attacker for all points" if same else "the worst attacker of each run"
    caption = (
        f"Kept: {spoken(kept.attribute)}, unchanged application."
        f" Attacker: on {spoken(target.attribute)}, {attacker}. Split: {target.part.split}."
    )
    about = (
        f"Up is more useful, left is more private. The ideal reads {spoken(kept.attribute)} as"
        " well as raw data does, and tells an attacker no more about"
        f" {spoken(target.attribute)} than guessing."
    )
    return [
        paragraph(about),
        grid(
            figure(charts.trade_off(marks, guess=ideal.hidden, raw=ideal.kept)),
            table(["Mark", "What", "Kept", "Attacker"], rows, caption),
        ),
    ]


def _marks(named: Sequence[tuple[str, Audit]], attribute: str, split: str) -> list[charts.Mark]:
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
    drawn = {audit.method for _, audit in named}
    points = [point for _, _, part in parts for point in part.trade_off]
    plain = {point.name: point for point in points if point.name not in drawn}
    # One run is named beside its point; the names of many would not fit there, letters do.
    labels = ["this run"] if len(named) == 1 else [_letter(i) for i in range(len(runs))]
    return [
        *[charts.Mark("run", label, *run) for label, run in zip(labels, runs, strict=False)],
        *[
            charts.Mark("plain", str(number), point.name, point.hidden, point.kept)
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


def attackers(audit: Audit) -> list[Html | None]:
    """The ladder for every attribute: hidden ones open, unlisted ones folded."""
    levels = [
        joined([element("dt", level), element("dd", what)]) for level, what in THREAT_MODELS.items()
    ]
    hidden = [_ladder(f.found, f.part, audit) for f in findings(audit) if f.found is not None]
    unlisted = [
        folded(_summary(found), _ladder(found, audit.main, audit))
        for found in audit.main.attributes
        if found.attribute not in (*audit.hide, *audit.keep)
    ]
    left_out = [[capital(spoken(n)), why] for n, why in audit.main.left_out.items()]
    return [
        paragraph("Kinds of attacker, from the least to the most informed:"),
        element("dl", *levels),
        *hidden,
        element("h3", "Attributes that nobody listed") if unlisted else None,
        *unlisted,
        table(["Left out", "Why"], left_out, "Attributes that were not attacked", prose=[1]),
    ]


def _summary(found: AttributeAudit) -> Html:
    level = with_interval(found.worst.accuracy)
    about = f" worst attacker {level}, guessing {percent(found.majority)} "
    return joined([f"{capital(spoken(found.attribute))}:", about, badge(found.verdict.status)])


def _ladder(found: AttributeAudit, part: SplitAudit, audit: Audit) -> Html:
    attacks = all_attacks(found)
    elsewhere = "" if part is audit.main else f", split {part.split}"
    name = capital(spoken(found.attribute))
    about = (
        f"{counted(found.windows, 'window')} of {counted(found.people, 'person')},"
        f" {len(found.classes)} classes. {words.control_note(found)}"
    )
    void = "So the verdict is inconclusive: nothing here proves that anything is hidden."
    none_below = paragraph(void, "warning") if found.verdict.status == INCONCLUSIVE else None
    rows = [
        [
            f"{a.threat_model}, {a.attacker}{' (worst)' if a == found.worst else ''}",
            with_interval(a.accuracy),
            points_with_interval(a.advantage),
            with_interval(a.balanced_accuracy),
            auc(a.auc),
            UNKNOWN if a.overall_auc is None else auc(a.overall_auc),
        ]
        for a in attacks
    ]
    headers = ["Attacker", "Right", "Over guessing, points", "Balanced", "AUC", "AUC overall"]
    limit = found.bound.accuracy if found.bound and not found.bound.vacuous else None
    chart = charts.ladder(attacks, found.majority, found.worst, name, bound=limit)
    caption = "Filled: on the output. Hollow: on raw data, and the control. Black: the worst."
    return joined(
        [
            element("h3", f"{name}{elsewhere}"),
            grid(
                figure(chart, caption),
                element(
                    "div",
                    paragraph(words.worst_note(found)),
                    paragraph(words.bound_note(found)),
                    paragraph(about),
                    none_below,
                ),
            ),
            folded("All attackers in figures", table(headers, rows, f"{name}: attackers")),
        ]
    )


def all_attacks(found: AttributeAudit) -> list[Attack]:
    """The attacks with the control once, in the order of the ladder."""
    attacks = [attack for attack in found.attacks if attack != found.control]
    return sorted(
        [*attacks, found.control], key=lambda a: list(THREAT_MODELS).index(a.threat_model)
    )
