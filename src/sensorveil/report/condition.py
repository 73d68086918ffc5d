"""The section of an audit's page about what the output is made from."""

from __future__ import annotations

from sensorveil.audit.results import Audit, SplitAudit
from sensorveil.report.blocks import paragraph, table
from sensorveil.report.markup import Html
from sensorveil.report.numbers import percent, points
from sensorveil.report.words import capital, spoken

_SOURCES = {"z_U": "the encoder's features", "condition": "the generator's condition"}
_HEADERS = (
    "Split",
    "Attribute",
    "From",
    "Guessing",
    "Right",
    "From the class alone",
    "Beyond it, points",
)


def condition_probes(audit: Audit) -> list[Html | None]:
    """What probes read of the run's own condition."""
    probed = [part for part in audit.splits if part.condition_probes]
    if not probed:
        return []
    first = probed[0].condition_probes[0]
    about = (
        "The output is made from what a generator is told of each window, and noise; so nobody"
        " learns more from the output than from that. While the run was trained, probes read every"
        f" attribute from it, in {first.windows:,} windows of {first.people} people whom the probed"
        " encoders had not seen, at the strengths that the run's settings name. What is read beyond"
        " what the kept class gives away by itself is a leak. Where a class is misread more often"
        " for some people than for others, the class alone is better than guessing, and leaks too."
    )
    return [
        paragraph(about),
        table(_HEADERS, [row for part in probed for row in _rows(part)], "Probes of the condition"),
        paragraph("A probe is linear within each class: it finds coarse leaks.", "note"),
    ]


def _rows(part: SplitAudit) -> list[list[str]]:
    return [
        [
            part.split,
            capital(spoken(one.attribute)),
            _SOURCES[one.source],
            percent(one.majority),
            percent(one.accuracy),
            percent(one.class_alone),
            points(one.accuracy - one.class_alone),
        ]
        for one in part.condition_probes
    ]
