"""The charts of a page: matplotlib figures as inline SVG.

All are 340 units wide, about a phone's screen, so that their text is as large as the page's. They
take the page's colours, in light and dark mode. Whatever a colour says, a shape or a word says too,
and each chart has a label in words.
"""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sensorveil.audit.results import (
    CONTROL,
    INCONCLUSIVE,
    LOOKS,
    NOT_HIDDEN,
    RAW,
    RECORDING,
    Attack,
    Example,
    SessionPoint,
)
from sensorveil.report.numbers import percent
from sensorveil.statistics import Estimate

WIDTH = 340
"""Units across every chart; one unit is a pixel of 12-pixel text."""
ADDS_UP = "adds up"
"""The way of an attacker of single windows to take several."""
_MOST_CHANNELS = 6
_MOST_SAMPLES = 160
_NUMBER = "\ue000"
"""Stands for a chart's number on its page; no font has a letter for it."""
_LETTER = 0.024
"""About the width of a letter as a share of a chart's width."""

# The colours of the page's light mode stand in for its variables until the SVG is written.
CSS = resources.files("sensorveil.report").joinpath("style.css").read_text("utf-8")
COLOURS = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", CSS.partition("}")[0]))
INK, SOFT, RULE, SURFACE, PAPER, ACCENT, HIDDEN_COLOUR = (
    COLOURS[name] for name in ("ink", "soft", "rule", "surface", "paper", "accent", "hidden")
)

_STYLE: Any = {
    "font.size": 12,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": SOFT,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "grid.color": RULE,
    "grid.linewidth": 0.75,
    "axes.axisbelow": True,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",  # text stays text: it can be read aloud, found and copied
    "svg.hashsalt": "sensorveil",  # the same figures give the same SVG
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Chart:
    """A drawn chart: SVG elements, and what they show in words."""

    kind: str
    label: str
    height: float
    content: str

    def svg(self, number: int) -> str:
        """The SVG element; `number` keeps the names inside apart from those of other charts."""
        label = html.escape(self.label)
        return (
            f'<svg class="chart {self.kind}" viewBox="0 0 {WIDTH} {self.height:g}" role="img"'
            f' aria-label="{label}"><title>{label}</title>'
            f"{self.content.replace(_NUMBER, f'chart{number}-')}</svg>"
        )


@dataclass(frozen=True)
class Mark:
    """One point of a trade-off: `label` stands beside it in the chart, `name` in the table."""

    kind: Literal["run", "baseline", "ideal"]
    label: str
    name: str
    hidden: float
    kept: float


@rc_context(_STYLE)
def strip(
    status: str, majority: float, worst: Estimate | None, raw: float | None, name: str
) -> Chart:
    """The majority baseline, the worst attacker with its interval, and the raw level on a line."""
    axes = _axes(118, left=5, right=5, top=0, bottom=0)
    axes.set(xlim=(0, 1), ylim=(-3.4, 1.2), xticks=[], yticks=[])
    colour = COLOURS[status.replace(" ", "-")]
    dashes = (0, (4, 3)) if status == INCONCLUSIVE else "-"
    axes.barh(0, 1, 0.62, color=SURFACE, edgecolor=colour if dashes != "-" else RULE, ls=dashes)
    label = f"{name}: the majority baseline is {percent(majority)}"
    if raw is not None and math.isfinite(raw):
        axes.plot([raw, raw], [0, -1.6], color=SOFT, lw=0.75)
        axes.plot(raw, 0, "D", color=PAPER, mec=INK, mew=1.5, ms=8)
        _text(axes, raw, -1.95, f"on raw data {percent(raw)}", color=SOFT)
        label += f", the best attacker on raw data {percent(raw)}"
    else:
        raw = None
    if worst is not None and math.isfinite(worst.value):
        said = f"{'unproven attacker' if status == INCONCLUSIVE else 'attacker'}"
        said += f" {percent(worst.value)}"
        gain = max(worst.value - majority, 0)
        tint = colour if status == NOT_HIDDEN else SOFT
        axes.barh(0, gain, 0.62, left=majority, color=tint, alpha=0.4)
        axes.plot([worst.value] * 2, [0, -0.75], color=SOFT, lw=0.75)
        _interval(axes, worst, 0)
        face = PAPER if status == INCONCLUSIVE else colour
        axes.plot(worst.value, 0, "o", color=face, mec=colour, mew=2, ms=10)
        # The line of the raw level shall not cross the label.
        side = None if raw is None else "right" if raw >= worst.value else "left"
        _text(axes, worst.value, -1.1, said, side, weight="bold")
        label += f", on this output the {said}"
    axes.plot([majority] * 2, [-0.45, 0.6], "--", color=INK, lw=1.25)
    _text(axes, majority, 0.85, f"majority baseline {percent(majority)}")
    axes.text(0, -3.1, "never right", color=SOFT, va="center")
    axes.text(1, -3.1, "always right", color=SOFT, va="center", ha="right")
    return _chart(axes, "strip", f"{label}.")


@rc_context(_STYLE)
def attacks(
    attacks: Sequence[Attack],
    majority: float,
    worst: Attack | None,
    name: str,
    bound: float | None = None,
) -> Chart:
    """Every attack's accuracy with its interval, by threat model, against the majority baseline.

    `attacks` come in the order of their threat models. A `bound` is drawn as a line; an attack on
    the output beyond it found more than the code.
    """
    groups = [(model, list(of)) for model, of in groupby(attacks, lambda a: a.threat_model)]
    rows = len(attacks) + 1.4 * len(groups)
    height = 18 * rows + (58 if bound is not None else 40)
    axes = _axes(height, left=130, right=44, top=18, bottom=height - 18 * rows - 18)
    axes.set(xlim=(0, 1), ylim=(rows, 0), yticks=[], xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_xticklabels(["0%", "", "", "", "100%"])
    axes.grid(axis="x")
    row = 0.0
    for model, of in groups:
        row += 1.1
        _row_text(axes, 0, row - 0.4, model, weight="bold")
        for attack in of:
            row += 1
            _attack(axes, attack, row - 0.5, attack == worst)
        row += 0.3
    axes.plot([majority] * 2, [0, rows], "--", color=INK, lw=1.25)
    _text(axes, majority, -0.5, f"majority baseline {percent(majority)}")
    label = f"{name}: accuracy of {len(attacks)} attacks; the majority baseline is"
    label += f" {percent(majority)}"
    if worst is not None:
        label += f"; the worst is {worst.attacker}, {worst.threat_model},"
        label += f" {percent(worst.accuracy.value)}"
    if bound is not None:
        said = f"bound: at most {percent(bound)}"
        axes.plot([bound] * 2, [0, rows + 1], color=INK, lw=2, clip_on=False)
        _text(axes, bound, rows + 1.7, said)
        label += f"; {said}"
    return _chart(axes, "attacks", f"{label}.")


@rc_context(_STYLE)
def session_curve(points: Sequence[SessionPoint], ways: Sequence[str], name: str) -> Chart:
    """The worst attacker's accuracy against the number of windows it sees, and the baseline.

    `ways` has for each point how its attacker takes several windows: it adds up, or the name of the
    session attacker. It stands below the number of windows.
    """
    axes = _axes(206, left=44, right=10, top=16, bottom=56)
    group = points[0].group if points else RECORDING
    what = "obfuscations of one window" if group == LOOKS else f"windows of one {group}"
    many = ["all" if p.windows is None else str(p.windows) for p in points]
    axes.set(xlim=(-0.5, max(len(points) - 0.5, 1)), ylim=(0, 1.2), xticks=range(len(points)))
    short = [_clipped(way.removesuffix(" network"), 9) for way in ways]
    axes.set_xticklabels([f"{count}\n{way}" for count, way in zip(many, short, strict=True)])
    axes.set_xlabel(what)
    _percent_axis(axes)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.plot([p.majority for p in points], "--", color=INK, lw=1.25)
    axes.plot([p.accuracy.value for p in points], color=ACCENT, lw=2)
    for x, (point, way) in enumerate(zip(points, ways, strict=True)):
        if not math.isfinite(point.accuracy.value):
            continue
        axes.plot([x, x], [point.accuracy.low, point.accuracy.high], color=INK, lw=2)
        colour = COLOURS["not-hidden"] if point.significant else ACCENT
        shape = "o" if way == ADDS_UP else "s"
        axes.plot(x, point.accuracy.value, shape, color=colour, ms=8)
        if point.significant:
            _text(axes, x, point.accuracy.high + 0.11, "leak", "center", weight="bold")
    said = ", ".join(
        f"{count} ({way}): {percent(p.accuracy.value)} against {percent(p.majority)}"
        f"{' (leak found)' if p.significant else ''}"
        for count, way, p in zip(many, ways, points, strict=True)
    )
    label = f"{name}, {what}. The worst attacker against the majority baseline: {said}."
    return _chart(axes, "sessions", label)


@rc_context(_STYLE)
def trade_off(
    marks: Sequence[Mark],
    majority: float | None = None,
    raw: float | None = None,
    frontier: bool = False,
) -> Chart:
    """The application's accuracy against the worst attacker's: up is useful, left is private."""
    seen = [mark for mark in marks if math.isfinite(mark.hidden) and math.isfinite(mark.kept)]
    axes = _axes(264, left=46, right=14, top=36, bottom=40)
    axes.set_xlim(_fitted([m.hidden for m in seen] + [majority or m.hidden for m in seen[:1]]))
    axes.set_ylim(_fitted([m.kept for m in seen] + [raw or m.kept for m in seen[:1]]))
    _percent_axis(axes)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.grid(True)
    axes.set_xlabel("accuracy of the attacker →")
    axes.text(-0.14, 1.13, "↑ accuracy of the application", color=SOFT, transform=axes.transAxes)
    if majority is not None:
        axes.axvline(majority, color=INK, lw=1.25, ls="--")
        _text(axes, majority, 1.04, "majority baseline", color=SOFT, on="top")
    if raw is not None:
        axes.axhline(raw, color=INK, lw=1.25, ls="--")
    if frontier:
        real = [mark for mark in seen if mark.kind != "ideal"]
        best = sorted((m.hidden, m.kept) for m in real if _undominated(m, real))
        axes.plot(*zip(*best, strict=True), color=ACCENT, lw=2, gid="frontier")
    shapes: dict[str, dict[str, Any]] = {
        "run": {"marker": "D", "color": INK, "ms": 9},
        "baseline": {"marker": "o", "color": ACCENT, "ms": 8},
        "ideal": {"marker": "+", "color": HIDDEN_COLOUR, "ms": 14, "mew": 2.5},
    }
    for mark in seen:
        axes.plot(mark.hidden, mark.kept, clip_on=False, **shapes[mark.kind])
    _name_points(axes, seen)
    said = "; ".join(
        f"{m.name}: kept {percent(m.kept)}, attacker {percent(m.hidden)}" for m in seen
    )
    return _chart(axes, "trade-off", f"Trade-off. {said}.")


@rc_context(_STYLE)
def signals(example: Example) -> Chart:
    """A window before (left) and after (right), a row for each channel, the same scale on a row."""
    channels = list(zip(example.channels, example.before, example.after, strict=False))
    channels = channels[:_MOST_CHANNELS]
    height = 68 * len(channels) + 34
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    seconds = max((len(one) for one in example.before), default=0) / (example.sample_rate or 1)
    for row, (channel, *windows) in enumerate(channels):
        finite = [value for window in windows for value in window if math.isfinite(value)]
        limits = min(finite, default=0), max(finite, default=0) + 1e-9
        for column, samples in enumerate(windows):
            low = height - 68 * row - 82
            place = (176 * column / WIDTH, low / height, 164 / WIDTH, 46 / height)
            axes = figure.add_axes(place, facecolor=SURFACE)
            axes.set(xlim=(0, max(len(samples) - 1, 1)), ylim=limits, xticks=[], yticks=[])
            axes.margins(y=0.05)
            every = max(1, math.ceil(len(samples) / _MOST_SAMPLES))
            axes.plot(range(0, len(samples), every), samples[::every], color=ACCENT, lw=1.25)
            if column == 0:
                axes.set_title(_clipped(channel, 40), size=12, loc="left", pad=5)
            if row == 0:
                title = ("before", "after")[column]
                axes.text(0.5, 1.55, title, transform=axes.transAxes, ha="center", weight="bold")
            if row == len(channels) - 1:
                axes.set_xlabel(f"{seconds:.1f} s")
    shown = f"{len(channels)} of {len(example.channels)} channels"
    return _chart(figure, "signals", f"{example.title}: before and after, {shown}.")


def _axes(height: float, left: float, right: float, top: float, bottom: float) -> Axes:
    """Axes on a figure of their own, with margins in units."""
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    across, up = WIDTH - left - right, height - top - bottom
    return figure.add_axes(
        (left / WIDTH, bottom / height, across / WIDTH, up / height), facecolor="none"
    )


def _chart(drawn: Axes | Figure, kind: str, label: str) -> Chart:
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    assert figure is not None
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings(action="ignore"):  # letters that only the page's font has
        figure.savefig(file, format="svg", facecolor="none", metadata=nothing)
    return Chart(kind, label, 72 * figure.get_figheight(), _inline(file.getvalue()))


def _inline(svg: str) -> str:
    """The elements of matplotlib's SVG, with the page's fonts and colours and no names of its own.

    Its few references get the chart's number later, since several charts stand on one page.
    """
    content = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    content = re.sub(r"<(metadata|style|clipPath)\b.*?</\1>", "", content, flags=re.S)
    content = re.sub(r' clip-path="url[^"]*"|font-family: [^;"]*;? ?', "", content)
    content = content.replace('<g id="frontier"', '<g class="frontier"')
    content = re.sub(r'<g id="[^"]*"', "<g", content)
    content = content.replace('<path id="', f'<path id="{_NUMBER}')
    content = content.replace('<use xlink:href="#', f'<use href="#{_NUMBER}')
    for name, colour in COLOURS.items():
        content = re.sub(rf"((?:fill|stroke): ){colour}", rf"\1var(--{name})", content)
    return re.sub(r">\s+<", "><", content.strip())


def _text(
    axes: Axes, x: float, y: float, said: str, side: str | None = None, on: str = "", **more: Any
) -> None:
    """A text at a value; its side is chosen so that it stays inside the chart."""
    low, high = axes.get_xlim()
    share, room = (x - low) / (high - low), len(said) * _LETTER
    if side is None or (side == "right" and share < room) or (side == "left" and share > 1 - room):
        near = room / 2
        side = "left" if share < near else "right" if share > 1 - near else "center"
    where = axes.get_xaxis_transform() if on else axes.transData
    axes.text(x, y, said, ha=side, va="center", transform=where, **more)


def _row_text(axes: Axes, x: float, y: float, said: str, ha: str = "left", **more: Any) -> None:
    """A text at a row of the chart, with x in units of the whole chart."""
    where = axes.get_yaxis_transform()
    left, right = axes.get_position().x0 * WIDTH, axes.get_position().x1 * WIDTH
    axes.text((x - left) / (right - left), y, said, ha=ha, va="center", transform=where, **more)


def _attack(axes: Axes, attack: Attack, y: float, is_worst: bool) -> None:
    """One row of the chart of attacks."""
    _row_text(axes, 8, y, _clipped(attack.attacker, 19), color=SOFT)
    accuracy = attack.accuracy
    if not math.isfinite(accuracy.value):
        _row_text(axes, WIDTH, y, percent(accuracy.value), "right")
        return
    _interval(axes, accuracy, y)
    look: dict[str, Any] = {"color": INK, "ms": 10} if is_worst else {"color": ACCENT, "ms": 7}
    if attack.threat_model in (RAW, CONTROL):
        look = {"color": PAPER, "mec": ACCENT, "mew": 1.75, "ms": 7}
    elif attack.found:
        look["color"] = COLOURS["not-hidden"]
    is_leak = attack.found and attack.threat_model != CONTROL  # the control's was planted
    axes.plot(accuracy.value, y, "X" if is_leak else "o", **look)
    weight = "bold" if is_worst else "normal"
    _row_text(axes, WIDTH, y, percent(accuracy.value), "right", weight=weight)


def _interval(axes: Axes, estimate: Estimate, y: float) -> None:
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        axes.plot([max(estimate.low, 0), min(estimate.high, 1)], [y, y], color=INK, lw=2)


def _percent_axis(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.grid(axis="y")


def _name_points(axes: Axes, marks: Sequence[Mark]) -> None:
    """The labels beside the points; points too close for labels of their own share one."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, up = 0.1 * (right - left), 0.07 * (high - low)
    groups: list[list[Mark]] = []
    for mark in marks:
        for group in groups:
            first = group[0]
            if abs(mark.hidden - first.hidden) < across and abs(mark.kept - first.kept) < up:
                group.append(mark)
                break
        else:
            groups.append([mark])
    for group in groups:
        said = ", ".join(mark.label for mark in group)
        end = max(mark.hidden for mark in group)
        is_right = (end - left) / (right - left) + len(said) * _LETTER * 1.2 > 0.95
        at = min(mark.hidden for mark in group) if is_right else end
        axes.annotate(
            said,
            (at, group[0].kept),
            xytext=(-9 if is_right else 9, 0),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="center",
            weight="bold",
        )


def _fitted(values: Sequence[float]) -> tuple[float, float]:
    """Whole tens of percent around the values, with room beside the outermost."""
    low = math.floor(min(values, default=0) * 10 - 0.2) / 10
    high = math.ceil(max(values, default=1) * 10 + 0.2) / 10
    return max(low, 0.0), min(high, 1.0) if high > low else low + 0.1


def _undominated(mark: Mark, marks: Sequence[Mark]) -> bool:
    return not any(
        other.hidden <= mark.hidden
        and other.kept >= mark.kept
        and (other.hidden, other.kept) != (mark.hidden, mark.kept)
        for other in marks
    )


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
