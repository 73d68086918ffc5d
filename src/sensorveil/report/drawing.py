"""The pens of the charts: axes, lines, texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sensorveil.measures.estimate import Estimate
from sensorveil.report.markup import Html, element

WIDTH = 340
"""Units across every chart."""
LETTER = 7.0
"""At most about the width of a letter at the charts' 12 units."""


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` laid out from `start` to `end`.

    >>> Axis(0, 1, 20, 120).at(0.5)
    70.0
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies; beyond the ends it stays at the end."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def chart(height: float, label: str, drawn: Sequence[Html | None], kind: str) -> Html:
    """The drawing as an image with a name for those who do not see it."""
    return element(
        "svg",
        element("title", label),
        *drawn,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=label,
        class_=f"chart {kind}",
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def polyline(places: Sequence[tuple[float, float]], kind: str) -> Html:
    """A line through all places."""
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return element("polyline", points=text, class_=kind)


def path(drawing: str, kind: str | None = None) -> Html:
    """A path."""
    return element("path", d=drawing, class_=kind)


def diamond(x: float, y: float, size: float = 6, kind: str = "raw") -> Html:
    """A diamond around a place."""
    return path(f"M{x:.1f} {y - size:.1f}l{size} {size}l-{size} {size}l-{size} -{size}z", kind)


def text(
    x: float, y: float, text: str, kind: str, anchor: str = "middle", keep_inside: bool = False
) -> Html:
    """A text; `keep_inside` moves it back where it would leave the chart."""
    half = len(text) * LETTER / 2
    if keep_inside:
        x = min(max(x, half), WIDTH - half)
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=kind)


def clipped(text: str, most: int) -> str:
    """A text cut down to so many letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def fitted_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis in whole tens of percent around the values, with room beside the outermost."""
    low = math.floor(min(values, default=0) * 10 - 0.2) / 10
    high = math.ceil(max(values, default=1) * 10 + 0.2) / 10
    return Axis(max(low, 0.0), min(high, 1.0) if high > low else low + 0.1, start, end)


def percent_ticks(low: float, high: float) -> list[float]:
    """Round shares between two ends."""
    step = 0.1 if high - low <= 0.45 else 0.2 if high - low <= 0.65 else 0.25
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def interval_line(axis: Axis, estimate: Estimate, y: float) -> Html | None:
    """An estimate's interval as a line, where it has one."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return None
    return line(axis.at(estimate.low), y, axis.at(estimate.high), y, "interval")
