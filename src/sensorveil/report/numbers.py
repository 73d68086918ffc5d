"""Numbers as people read them: one decimal, intervals in brackets, a dash for what is unknown."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from sensorveil.statistics import Estimate

UNKNOWN = "–"


def percent(share: float) -> str:
    """A share in percent with one decimal.

    >>> percent(0.58912), percent(float("nan"))
    ('58.9%', '–')
    """
    return f"{100 * share + 0.0:.1f}%" if math.isfinite(share) else UNKNOWN


def points(difference: float) -> str:
    """A difference of two shares in points.

    >>> points(0.013), points(-0.0001)
    ('+1.3', '0.0')
    """
    if not math.isfinite(difference):
        return UNKNOWN
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def decimals(value: float | None, digits: int = 2) -> str:
    """A plain number, or a dash where there is none.

    >>> decimals(0.6849), decimals(-0.0001), decimals(None)
    ('0.68', '0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def p_value(value: float) -> str:
    """A p-value of an exchange test.

    >>> p_value(0.0005), p_value(0.4775)
    ('below 0.001', '0.477')
    """
    return "below 0.001" if value < 0.001 else decimals(value, 3)


def with_interval(estimate: Estimate) -> str:
    """A share with its interval in brackets.

    >>> with_interval(Estimate(0.971, 0.955, 0.983, people=24))
    '97.1% (95.5 to 98.3)'
    """
    return _between(estimate, percent, unit="%")


def points_with_interval(estimate: Estimate) -> str:
    """A difference in points with its interval in brackets.

    >>> points_with_interval(Estimate(-0.001, -0.02, 0.018, people=24))
    '−0.1 (−2.0 to +1.8)'
    """
    return _between(estimate, points)


def auc(estimate: Estimate) -> str:
    """An AUC with its interval: three decimals are as many digits as a percentage has.

    >>> auc(Estimate(0.507, 0.48, 0.534, people=24))
    '0.507 (0.480 to 0.534)'
    """
    return _between(estimate, partial(decimals, digits=3))


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "window"), counted(13381, "window"), counted(2, "person")
    ('1 window', '13,381 windows', '2 people')
    """
    plural = {"person": "people"}.get(what, f"{what}s")
    return f"{number:,} {what if number == 1 else plural}"


def _between(estimate: Estimate, write: Callable[[float], str], unit: str = "") -> str:
    """A value and its interval; the interval goes without the unit."""
    if not math.isfinite(estimate.value):
        return UNKNOWN
    low, high = (write(end).removesuffix(unit) for end in (estimate.low, estimate.high))
    return f"{write(estimate.value)} ({low} to {high})"
