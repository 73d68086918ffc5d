"""One self-contained HTML page out of an audit's results: it works offline and on a phone."""

from sensorveil.audit.results import SweepPoint
from sensorveil.report.page import (
    Difference,
    render,
    render_comparison,
    render_sweep,
    write_page,
)

__all__ = [
    "Difference",
    "SweepPoint",
    "render",
    "render_comparison",
    "render_sweep",
    "write_page",
]
