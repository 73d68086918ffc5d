"""The sections of an audit's page that go into detail: sessions, classes, identity, conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from sensorveil.audit.results import AttributeAudit, Audit, Linkage, SessionPoint, SplitAudit
from sensorveil.report import charts, words
from sensorveil.report.blocks import badge, figure, folded, grid, paragraph, table
from sensorveil.report.findings import findings, sharpest
from sensorveil.report.markup import Html, element, joined
from sensorveil.report.numbers import (
    UNKNOWN,
    auc,
    counted,
    decimals,
    percent,
    points,
    points_with_interval,
    with_interval,
)
from sensorveil.report.sections import strip
from sensorveil.report.words import capital, listed, spoken

_LINKAGE_HEADERS = (
    "Split",
    "Compared with",
    "People",
    "Sessions",
    "First hit",
    "By chance",
    "First hit, raw",
    "Equal error rate",
    "Equal error rate, raw",
    "Planted leak found",
)
_ATTRIBUTE_HEADERS = (
    "Attribute",
    "Split",
    "Role",
    "Classes",
    "Windows",
    "People",
    "Most common",
    "Even guess",
    "Seeds",
)


def sessions(audit: Audit) -> list[Html | None]:
    """What adding up windows gives an attacker."""
    shown = [f.found for f in findings(audit) if f.found is not None and f.found.sessions]
    if not shown:
        return []
    about = (
        "A leak too small to see in one window can add up. The worst attacker adds up its evidence"
        " over several windows of one recording or person. The dashed line is guessing; a point"
        " marked leak is above guessing beyond its interval."
    )
    return [paragraph(about), *[_session_curves(found) for found in shown]]


def _session_curves(found: AttributeAudit) -> Html:
    name = capital(spoken(found.attribute))
    groups = [list(points) for _, points in groupby(found.sessions, key=lambda p: p.group)]
    rows = [_session_row(point) for point in found.sessions]
    headers = ["Windows", "Sessions", "Guessing", "Right", "Over guessing, points", "Leak"]
    return joined(
        [
            element("h3", name),
            grid(*[figure(charts.session_curve(points, name)) for points in groups]),
            folded("The same in figures", table(headers, rows, f"{name}: windows added up")),
        ]
    )


def _session_row(point: SessionPoint) -> list[str]:
    many = "all" if point.windows is None else str(point.windows)
    return [
        f"{many} of one {point.group}",
        f"{point.sessions:,}",
        percent(point.majority),
        with_interval(point.accuracy),
        points_with_interval(point.advantage),
        "found" if point.significant else "not found",
    ]


def classes(audit: Audit) -> list[Html | None]:
    """Every class of every kept attribute."""
    headers = ["Class", "F1", "Recall"]
    return [
        table(
            headers,
            [
                [
                    name,
                    percent(kept.f1_by_class.get(name, float("nan"))),
                    percent(kept.recall_by_class.get(name, float("nan"))),
                ]
                for name in kept.classes
            ],
            f"{capital(spoken(kept.attribute))}, read by the unchanged application",
        )
        for kept in audit.main.kept
    ]


def _planted(link: Linkage) -> str:
    """What the linkers made of the planted leak."""
    if link.control is None:
        return UNKNOWN
    had = points(link.control.value - link.rank1_chance).lstrip("+")
    return f"{had} of {points(link.planted).lstrip('+')} points"


def identity(audit: Audit) -> list[Html | None]:
    """Linking sessions of one person, and models trained on leaked output."""
    linkage = _over_parts(
        audit,
        lambda part: [
            [
                link.gallery,
                f"{link.people:,}",
                f"{link.sessions:,}",
                with_interval(link.rank1),
                percent(link.rank1_chance),
                with_interval(link.raw_rank1),
                with_interval(link.equal_error_rate),
                with_interval(link.raw_equal_error_rate),
                _planted(link),
            ]
            for link in part.linkage
        ],
    )
    again = _over_parts(
        audit,
        lambda part: [
            [
                capital(spoken(again.attribute)),
                again.protocol,
                f"{again.runs}",
                f"{percent(again.mean)} ± {points(again.spread).lstrip('+')}",
                percent(again.majority),
            ]
            for again in part.reidentification
        ],
    )
    return [
        paragraph(
            "Linkage: is an obfuscated session matched to another session of the same person? First"
            " hit: how often the closest session is the right person's. An equal error rate of"
            " 50% means that matches are tossed like a coin."
        )
        if linkage
        else None,
        table(
            _LINKAGE_HEADERS,
            linkage,
            "Linkage of sessions",
        ),
        table(
            ["Split", "Attribute", "As in", "Runs", "Right, mean ± spread", "Guessing"],
            again,
            "Re-identification: a model trained on leaked output with labels",
        ),
    ]


def information(audit: Audit) -> list[Html | None]:
    """Bits about each attribute, before and after."""
    rows = _over_parts(
        audit,
        lambda part: [
            [
                capital(spoken(info.attribute)),
                info.estimator,
                decimals(info.raw),
                decimals(info.obfuscated),
                decimals(info.entropy),
            ]
            for info in part.information
        ],
    )
    headers = ["Split", "Attribute", "Estimator", "Raw, bits", "Output, bits", "At most, bits"]
    return [
        table(headers, rows, "Estimated information about each attribute"),
        paragraph(
            "Estimates lean low: a small figure is a hint, not a proof. The attackers decide.",
            "note",
        )
        if rows
        else None,
    ]


def before_and_after(audit: Audit) -> list[Html | None]:
    """Windows to look at."""
    examples = [
        element("div", element("h3", example.title), figure(charts.signals(example)))
        for example in audit.main.examples
    ]
    return [grid(*examples)]


def splits(audit: Audit) -> list[Html | None]:
    """Unseen people beside the papers' split, with the gap."""
    if len(audit.splits) < 2:
        return []
    rows = [
        [
            capital(spoken(found.attribute)),
            f"{part.split}: {words.people_of(part.unseen_people)}",
            percent(found.majority),
            with_interval(found.worst.accuracy),
            auc(sharpest(found).auc),
            badge(found.verdict.status, short=True),
        ]
        for name in audit.hide
        for part in audit.splits
        for found in part.attributes
        if found.attribute == name
    ]
    kept = [
        [
            capital(spoken(kept.attribute)),
            f"{part.split}: {words.people_of(part.unseen_people)}",
            percent(kept.majority),
            with_interval(kept.raw),
            with_interval(kept.unchanged),
            with_interval(kept.retrained),
        ]
        for part in audit.splits
        for kept in part.kept
    ]
    return [
        paragraph(
            "Where the same people are in training and test, as in most papers, both the"
            " application and the attacker look better than they are with strangers."
        ),
        element("ul", *[element("li", words.gap_sentence(n, g)) for n, g in audit.gaps.items()])
        if audit.gaps
        else None,
        table(
            ["Hidden", "Split", "Guessing", "Worst attacker", "Highest AUC", "Verdict"],
            rows,
            "Hidden attributes on each split",
        ),
        table(
            ["Gap", "Points"],
            [[capital(spoken(n)), points(gap)] for n, gap in audit.gaps.items()],
            f"Worst attacker on {audit.splits[1].split} minus on {audit.splits[0].split}",
        ),
        table(
            ["Kept", "Split", "Guessing", "Raw", "Unchanged", "Retrained"],
            kept,
            "Kept attributes on each split",
        ),
        *[_other_split(part, audit) for part in audit.splits[1:]],
    ]


def _other_split(part: SplitAudit, audit: Audit) -> Html | None:
    shown = [found for found in part.attributes if found.attribute in audit.hide]
    pictures = [
        element(
            "div",
            element("h3", capital(spoken(found.attribute)), " ", badge(found.verdict.status)),
            figure(strip(found), f"By the rule: {found.verdict.reason.rstrip('.')}."),
        )
        for found in shown
    ]
    return folded(f"The verdicts on the split {part.split}", grid(*pictures)) if shown else None


def rule(audit: Audit) -> list[Html | None]:
    """The criterion in words."""
    opening, *rest = words.CRITERION
    conditions, remarks = rest[:3], rest[3:]
    return [
        paragraph(opening),
        element("ol", *[element("li", text) for text in conditions]),
        *[paragraph(text) for text in remarks],
    ]


def conditions(audit: Audit) -> list[Html | None]:
    """Under which conditions every figure of the page was measured."""
    split_rows = [
        [
            part.split,
            words.people_of(part.unseen_people),
            listed([str(fold) for fold in part.folds]) or UNKNOWN,
            f"{part.train_windows:,}",
            f"{part.test_windows:,}",
            f"{part.test_people:,}",
        ]
        for part in audit.splits
    ]
    run_rows = [
        ["method", f"{audit.method}: {audit.summary}"],
        ["data", audit.dataset],
        ["protocol", audit.protocol],
        ["keep", listed([spoken(name) for name in audit.keep])],
        ["hide", listed([spoken(name) for name in audit.hide])],
        ["strength", words.strengths(audit.strength)],
        ["seeds", listed([str(seed) for seed in audit.seeds])],
        ["quick", "yes: fewer and weaker attackers" if audit.quick else "no"],
        *_flat(audit.conditions),
    ]
    attribute_rows = [
        [
            capital(spoken(found.attribute)),
            part.split,
            found.role,
            listed(found.classes),
            f"{found.windows:,}",
            f"{found.people:,}",
            percent(found.majority),
            percent(found.chance),
            counted(found.worst.accuracy.seeds, "seed"),
        ]
        for part in audit.splits
        for found in part.attributes
    ]
    return [
        table(["Condition", "Value"], run_rows, "The run", prose=[1]),
        table(
            ["Split", "People", "Folds", "Training windows", "Test windows", "Test people"],
            split_rows,
            "The splits; all figures outside the section on splits are of the first",
        ),
        folded(
            "What each attribute was measured on",
            table(
                _ATTRIBUTE_HEADERS,
                attribute_rows,
                "Attributes",
                prose=[3],
            ),
        ),
        paragraph(
            "Intervals hold 95 of 100 results: people and seeds are drawn again, not windows,"
            " because windows of one person are alike.",
            "note",
        ),
    ]


def _flat(conditions: Mapping[str, Any], before: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for name, value in conditions.items():
        called = f"{before}{name}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{called}, ")
        elif isinstance(value, list | tuple):
            rows.append([called, ", ".join(str(item) for item in value)])
        else:
            rows.append([called, element("code", str(value)) if name == "command" else str(value)])
    return rows


def _over_parts(audit: Audit, rows: Callable[[SplitAudit], Sequence[list[str]]]) -> list[list[str]]:
    return [[part.split, *row] for part in audit.splits for row in rows(part)]
