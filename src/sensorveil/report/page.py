"""An audit as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sensorveil.audit.results import Audit
from sensorveil.files import written_file
from sensorveil.report import condition, details, sections
from sensorveil.report.blocks import contents, document, section
from sensorveil.report.markup import Html

Content = Callable[[Audit], list[Html | None]]

SECTIONS: tuple[tuple[str, str, Content], ...] = (
    ("survives", "What survives", sections.survives),
    ("trade-off", "What hiding costs", sections.trade_off),
    ("attackers", "Attackers", sections.attackers),
    ("sessions", "When windows add up", details.sessions),
    ("classes", "Class by class", details.classes),
    ("identity", "Identity", details.identity),
    ("condition", "What the output is made from", condition.condition_probes),
    ("information", "Information in bits", details.information),
    ("signals", "Before and after", details.before_and_after),
    ("splits", "Unseen people and the papers' split", details.splits),
    ("rule", "What counts as hidden", details.rule),
    ("conditions", "Conditions", details.conditions),
)
"""What follows the verdict: anchor, heading, and what is in it."""


def render(audit: Audit) -> str:
    """The page of one audit; a section with nothing to show is left out."""
    drawn = [
        (anchor, title, section(anchor, title, *content(audit)))
        for anchor, title, content in SECTIONS
    ]
    shown = [(anchor, title, html) for anchor, title, html in drawn if html is not None]
    return document(
        f"Audit of {audit.method} on {audit.dataset}",
        sections.verdict(audit),
        contents([(anchor, title) for anchor, title, _ in shown]),
        *[html for _, _, html in shown],
    )


def write_page(audit: Audit, path: Path | str) -> None:
    """Writes the page of one audit in one step: never half a page."""
    page = render(audit)
    with written_file(path) as temporary:
        temporary.write_text(page, "utf-8")
