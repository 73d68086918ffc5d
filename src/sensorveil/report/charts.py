"""Small SVG charts: pure functions from figures to markup.

All are 340 units wide, about the width of a phone's screen in pixels, so that their text is as
large there as the text around them. Colours and fonts come from the page's style sheet by class;
what a colour says is always said by a shape or a word too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sensorveil.audit.results import (
    CONTROL,
    HIDDEN,
    INCONCLUSIVE,
    NOT_HIDDEN,
    RAW,
    THREAT_MODELS,
    Attack,
    Example,
    SessionPoint,
)
from sensorveil.measures.estimate import Estimate
from sensorveil.report.drawing import (
    LETTER,
    WIDTH,
    Axis,
    chart,
    clipped,
    diamond,
    fitted_axis,
    interval_line,
    line,
    path,
    percent_ticks,
    polyline,
    text,
)
from sensorveil.report.markup import Html, element
from sensorveil.report.numbers import percent

_MOST_CHANNELS = 6
_MOST_SAMPLES = 160

STATUS_CLASS = {HIDDEN: "hidden", NOT_HIDDEN: "open", INCONCLUSIVE: "void"}


@dataclass(frozen=True)
class Mark:
    """One point of a trade-off plot; `kind` is run, plain or ideal, `label` stands beside it."""

    kind: str
    label: str
    name: str
    hidden: float
    kept: float


def symbol(status: str) -> Html:
    """The sign of a status: a tick, a cross, or a question mark in a broken circle."""
    drawn = {
        HIDDEN: path("M5.5 10.5l3 3 6-7"),
        NOT_HIDDEN: path("M6.5 6.5l7 7m0-7l-7 7"),
        INCONCLUSIVE: path("M7.2 7.6c.2-3.2 5.6-3.2 5.6.2 0 2.2-2.8 2.2-2.8 4.2m0 2.6v.4"),
    }[status]
    ring = element("circle", cx=10, cy=10, r=9, class_="ring")
    return element(
        "svg", ring, drawn, viewBox="0 0 20 20", class_="symbol", aria_hidden="true", width=20
    )


def strip(
    status: str, majority: float, worst: Estimate | None, raw: float | None, name: str
) -> Html:
    """Guessing, the worst attacker with its interval, and the raw level, on one line to 100%."""
    axis = Axis(0, 1, 4, WIDTH - 4)
    middle, guess = 32.0, axis.at(majority)
    label = f"{name}: guessing is right in {percent(majority)} of windows"
    drawn: list[Html | None] = [
        element("rect", x=4, y=middle - 8, width=WIDTH - 8, height=16, rx=3, class_="track"),
        _gain(axis, majority, worst, middle),
        line(guess, 18, guess, middle + 12, "guess"),
        text(guess, 12, f"guessing {percent(majority)}", "label", keep_inside=True),
    ]
    raw_at = None if raw is None or not math.isfinite(raw) else axis.at(raw)
    if raw_at is not None:
        said = f"on raw data {percent(raw or 0.0)}"
        drawn += [
            line(raw_at, middle, raw_at, 78, "leader"),
            diamond(raw_at, middle),
            text(raw_at, 90, said, "label soft", keep_inside=True),
        ]
        label += f", the best attacker {said}"
    if worst is not None and math.isfinite(worst.value):
        said = f"{'attacker' if status != INCONCLUSIVE else 'unproven attacker'} {percent(worst.value)}"
        at = axis.at(worst.value)
        drawn += [
            line(at, middle, at, 54, "leader"),
            interval_line(axis, worst, middle),
            element("circle", cx=at, cy=middle, r=5.5, class_=f"dot {STATUS_CLASS[status]}"),
            text(_beside(at, raw_at, said), 66, said, "label strong", keep_inside=True),
        ]
        label += f", on this output the {said}"
    drawn += [
        text(4, 112, "never right", "tick", anchor="start"),
        text(WIDTH - 4, 112, "always right", "tick", anchor="end"),
    ]
    return chart(118, f"{label}.", drawn, f"strip {STATUS_CLASS[status]}")


def _beside(at: float, other: float | None, said: str) -> float:
    """Where a label's middle goes so that the line of another mark does not cross it."""
    room = len(said) * LETTER / 2 + 4
    if other is None:
        return at
    return min(at, other - room) if other >= at else max(at, other + room)


def ladder(
    attacks: Sequence[Attack],
    majority: float,
    worst: Attack | None,
    name: str,
    low: float = 0.0,
    bound: float | None = None,
) -> Html:
    """Every attacker's accuracy with its interval, by level, against the majority's share.

    Where there is a `bound`, it is drawn as a line that no attacker on the output may pass.
    """
    axis = Axis(low, 1, 130, 296)
    drawn: list[Html | None] = []
    y = 22.0
    for level in [
        known for known in THREAT_MODELS if any(a.threat_model == known for a in attacks)
    ]:
        drawn.append(text(0, y + 12, level, "label strong", anchor="start"))
        y += 20
        for attack in [a for a in attacks if a.threat_model == level]:
            drawn += _rung(axis, attack, y + 8, attack == worst)
            y += 18
        y += 6
    bottom = y
    guess = axis.at(majority)
    behind = [
        *[line(axis.at(v), 18, axis.at(v), bottom, "rule") for v in percent_ticks(low, 1)],
        line(guess, 14, guess, bottom, "guess"),
        text(guess, 10, f"guessing {percent(majority)}", "label", keep_inside=True),
    ]
    scale = [text(axis.at(v), bottom + 14, f"{100 * v:.0f}%", "tick") for v in (low, 1.0)]
    label = f"{name}: accuracy of {len(attacks)} attackers against guessing at {percent(majority)}"
    if worst is not None:
        label += f"; the worst is {worst.attacker}, {worst.threat_model}, {percent(worst.accuracy.value)}"
    if bound is not None:
        said = f"nobody above {percent(bound)}"
        behind.append(line(axis.at(bound), 18, axis.at(bound), bottom + 18, "bound"))
        scale.append(text(axis.at(bound), bottom + 30, said, "label", keep_inside=True))
        label += f"; {said}"
    height = bottom + (18 if bound is None else 36)
    return chart(height, f"{label}.", [*behind, *drawn, *scale], "ladder")


def session_curve(points: Sequence[SessionPoint], name: str) -> Html:
    """Accuracy against the number of windows that are added up, with the majority's share."""
    bottom = 150.0
    up = Axis(0, 1, bottom, 14)
    along = Axis(0, max(len(points) - 1, 1), 56, WIDTH - 20)
    shown = [(along.at(i), p) for i, p in enumerate(points) if math.isfinite(p.accuracy.value)]
    drawn = [line(44, up.at(v), WIDTH - 6, up.at(v), "rule") for v in (0, 0.25, 0.5, 0.75, 1)]
    drawn += [text(38, up.at(v) + 4, f"{100 * v:.0f}%", "tick", "end") for v in (0, 0.5, 1)]
    drawn.append(polyline([(x, up.at(p.majority)) for x, p in shown], "guess"))
    drawn.append(polyline([(x, up.at(p.accuracy.value)) for x, p in shown], "curve"))
    for x, point in shown:
        drawn.append(line(x, up.at(point.accuracy.low), x, up.at(point.accuracy.high), "interval"))
        kind = "dot open" if point.significant else "dot plain"
        drawn.append(element("circle", cx=x, cy=up.at(point.accuracy.value), r=4.5, class_=kind))
        if point.significant:
            drawn.append(text(x, up.at(point.accuracy.high) - 6, "leak", "label strong"))
        many = "all" if point.windows is None else str(point.windows)
        drawn.append(text(x, bottom + 16, many, "tick"))
    group = points[0].group if points else "recording"
    drawn.append(text(WIDTH / 2 + 18, bottom + 34, f"windows of one {group}", "label soft"))
    said = ", ".join(
        f"{'all' if p.windows is None else p.windows}: {percent(p.accuracy.value)}"
        f" against {percent(p.majority)}{' (leak found)' if p.significant else ''}"
        for _, p in shown
    )
    label = f"{name}, windows of one {group} added up. Attacker against guessing: {said}."
    return chart(bottom + 40, label, drawn, "sessions")


def trade_off(
    marks: Sequence[Mark],
    guess: float | None = None,
    raw: float | None = None,
    frontier: bool = False,
    across: str = "attacker is right",
    upwards: str = "application is right",
) -> Html:
    """Kept accuracy against the worst attacker's: up is useful, left is private."""
    seen = [mark for mark in marks if math.isfinite(mark.hidden) and math.isfinite(mark.kept)]
    along = fitted_axis([m.hidden for m in seen] + ([guess] if guess is not None else []), 46, 326)
    up = fitted_axis([m.kept for m in seen] + ([raw] if raw is not None else []), 226, 42)
    drawn = _frame(along, up, across, upwards)
    if guess is not None:
        x = along.at(guess)
        drawn += [line(x, 34, x, 226, "guess"), text(x, 30, "guessing", "tick")]
    if raw is not None:
        drawn.append(line(46, up.at(raw), 326, up.at(raw), "guess"))
    places = [(along.at(mark.hidden), up.at(mark.kept)) for mark in seen]
    if frontier:
        real = [mark for mark in seen if mark.kind != "ideal"]
        best = [p for p, mark in zip(places, seen, strict=True) if _undominated(mark, real)]
        drawn.append(polyline(sorted(best), "curve"))
    drawn += [_marker(mark.kind, *place) for mark, place in zip(seen, places, strict=True)]
    drawn += _labels([mark.label for mark in seen], places)
    said = "; ".join(
        f"{m.name}: kept {percent(m.kept)}, attacker {percent(m.hidden)}" for m in seen
    )
    return chart(264, f"Trade-off. {said}.", drawn, "trade-off")


def signals(example: Example) -> Html:
    """A window before (left) and after (right), a row for each channel, the same scale on a row."""
    channels = list(zip(example.channels, example.before, example.after, strict=False))
    channels = channels[:_MOST_CHANNELS]
    drawn = [
        text(82, 12, "before", "label strong"),
        text(258, 12, "after", "label strong"),
    ]
    y = 20.0
    for channel, before, after in channels:
        both = [value for value in (*before, *after) if math.isfinite(value)]
        up = Axis(min(both, default=0), max(both, default=0) + 1e-9, y + 58, y + 18)
        drawn.append(text(0, y + 10, clipped(channel, 40), "tick", anchor="start"))
        for start, samples in ((0.0, before), (176.0, after)):
            drawn.append(
                element("rect", x=start, y=y + 15, width=164, height=46, rx=2, class_="panel")
            )
            drawn.append(_trace(samples, Axis(0, max(len(samples) - 1, 1), start, start + 164), up))
        y += 68
    seconds = max((len(before) for before in example.before), default=0) / (
        example.sample_rate or 1
    )
    drawn.append(text(82, y + 8, f"{seconds:.1f} s", "tick"))
    drawn.append(text(258, y + 8, f"{seconds:.1f} s", "tick"))
    shown = f"{len(channels)} of {len(example.channels)} channels"
    label = f"{example.title}: the signal before and after, {shown}."
    return chart(y + 14, label, drawn, "signals")


def _gain(axis: Axis, majority: float, worst: Estimate | None, middle: float) -> Html | None:
    """What the attacker gains over guessing, as a length."""
    if worst is None or not worst.value > majority:
        return None
    start, end = axis.at(majority), axis.at(worst.value)
    return element("rect", x=start, y=middle - 8, width=end - start, height=16, class_="gain")


def _rung(axis: Axis, attack: Attack, y: float, is_worst: bool) -> list[Html | None]:
    drawn: list[Html | None] = [
        text(8, y + 4, clipped(attack.attacker, 19), "label soft", anchor="start")
    ]
    if not math.isfinite(attack.accuracy.value):
        return [*drawn, text(WIDTH, y + 4, "–", "label", anchor="end")]
    x = axis.at(attack.accuracy.value)
    hollow = attack.threat_model in (RAW, CONTROL)
    kind = "dot worst" if is_worst else "dot hollow" if hollow else "dot plain"
    said = percent(attack.accuracy.value)
    return [
        *drawn,
        interval_line(axis, attack.accuracy, y),
        element("circle", cx=x, cy=y, r=5.5 if is_worst else 4, class_=kind),
        text(WIDTH, y + 4, said, f"label{' strong' if is_worst else ''}", anchor="end"),
    ]


def _marker(kind: str, x: float, y: float) -> Html:
    if kind == "ideal":
        return path(f"M{x - 7:.1f} {y:.1f}h14M{x:.1f} {y - 7:.1f}v14", "ideal")
    if kind == "run":
        return diamond(x, y, 7, "run")
    return element("circle", cx=x, cy=y, r=4.5, class_="dot plain")


def _labels(labels: Sequence[str], places: Sequence[tuple[float, float]]) -> list[Html]:
    """Each label at the first of eight places around its point where nothing else is."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    drawn = []
    for label, (x, y) in zip(labels, places, strict=True):
        half = max(len(label) * LETTER / 2, 4)
        boxes = [
            (x + dx - half, y + dy - 6, x + dx + half, y + dy + 6)
            for reach in (0, 12, 24)
            for dx, dy in _around(half + 9 + reach, 13 + reach)
        ]
        inside = [b for b in boxes if b[0] >= 46 and b[2] <= WIDTH and b[1] >= 34 and b[3] <= 226]
        candidates = inside or boxes
        box = next((b for b in candidates if not any(_overlap(b, t) for t in taken)), candidates[0])
        taken.append(box)
        middle = (box[0] + box[2]) / 2
        drawn.append(text(middle, box[1] + 10, label, "label strong"))
    return drawn


def _around(dx: float, dy: float) -> list[tuple[float, float]]:
    return [(dx, 0), (0, -dy), (0, dy), (-dx, 0), (dx, -dy), (dx, dy), (-dx, -dy), (-dx, dy)]


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _undominated(mark: Mark, marks: Sequence[Mark]) -> bool:
    return mark in marks and not any(
        other.hidden <= mark.hidden
        and other.kept >= mark.kept
        and (other.hidden, other.kept) != (mark.hidden, mark.kept)
        for other in marks
    )


def _frame(along: Axis, up: Axis, across: str, upwards: str) -> list[Html]:
    drawn = []
    for value in percent_ticks(up.low, up.high):
        drawn.append(line(46, up.at(value), 326, up.at(value), "rule"))
        drawn.append(text(40, up.at(value) + 4, f"{100 * value:.0f}%", "tick", anchor="end"))
    for value in percent_ticks(along.low, along.high):
        drawn.append(line(along.at(value), 42, along.at(value), 226, "rule"))
        drawn.append(text(along.at(value), 242, f"{100 * value:.0f}%", "tick"))
    drawn.append(text(186, 259, f"{across} →", "label soft"))
    drawn.append(text(0, 10, f"↑ {upwards}", "label soft", anchor="start"))
    return drawn


def _trace(samples: Sequence[float], along: Axis, up: Axis) -> Html:
    every = max(1, math.ceil(len(samples) / _MOST_SAMPLES))
    shown = [
        (along.at(i), up.at(v)) for i, v in list(enumerate(samples))[::every] if math.isfinite(v)
    ]
    return polyline(shown, "trace")
