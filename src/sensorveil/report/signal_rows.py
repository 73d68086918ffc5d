"""What survives of the signal itself: one row and one sentence for each measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sensorveil.audit.results import SignalUtility
from sensorveil.report.numbers import decimals, percent, points


class SignalRow(NamedTuple):
    """A measure with its value and the best one, as people read them.

    Parameters
    ----------
    name, value, best
        The name, the value with its unit, and the value that is best.
    meaning
        One sentence: what the value says.
    """

    name: str
    value: str
    best: str
    meaning: str


def signal_rows(signal: SignalUtility) -> list[SignalRow]:
    """The rows of the measures that were taken, in the order of the page.

    Examples
    --------
    >>> signal_rows(SignalUtility(cadence_error=4.32))[0][:3]
    ('Cadence of walking, median error', '4.3 steps a minute', '0')
    """
    rows = []
    for field, name, write, best, meaning in _MEASURES:
        value = getattr(signal, field)
        if value is not None:
            rows.append(SignalRow(name, write(value), best, meaning))
    return rows


def _steps_a_minute(value: float) -> str:
    return f"{decimals(value, 1)} steps a minute"


def _points(value: float) -> str:
    return f"{points(value).lstrip('+')} points"


_MEASURES: tuple[tuple[str, str, Callable[[float], str], str, str], ...] = (
    (
        "frequency_error",
        "Dominant frequency, mean error",
        lambda value: f"{decimals(value)} Hz",
        "0",
        "How far the strongest rhythm of a window is from that of the raw window.",
    ),
    (
        "frequency_correlation",
        "Dominant frequency, correlation with raw",
        decimals,
        "1",
        "Whether the rhythm goes up and down over a recording as on raw data; 0 is no relation.",
    ),
    (
        "energy_error",
        "Energy, mean error of its logarithm",
        decimals,
        "0",
        "How much stronger or weaker a window becomes; 0.69 is twice or half the energy.",
    ),
    (
        "energy_correlation",
        "Energy, correlation with raw",
        decimals,
        "1",
        "Whether the energy goes up and down over a recording as on raw data; 0 is no relation.",
    ),
    (
        "spectrum_distance",
        "Distance of the power spectra",
        decimals,
        "0",
        "The share of the power of all windows that lies at other frequencies; 1 is all of it.",
    ),
    (
        "spectrum_correlation",
        "Power in bands of frequency, correlation with raw",
        decimals,
        "1",
        "Whether the spectrum changes over a recording as on raw data; 0 is no relation.",
    ),
    (
        "cadence_error",
        "Cadence of walking, median error",
        _steps_a_minute,
        "0",
        "How far a cadence display is from what it shows on raw data.",
    ),
    (
        "cadence_reference",
        "The same, for the median of all other people",
        _steps_a_minute,
        "–",
        "A display that knows nothing of the person has this error; a useful output has a smaller one.",
    ),
    (
        "cadence_correlation",
        "Cadence of walking, correlation with raw",
        decimals,
        "1",
        "Whether a cadence display goes up and down over a recording as on raw data; 0 is no relation.",
    ),
    (
        "step_error",
        "Step count on walking, mean error",
        percent,
        "0%",
        "How far the steps counted in single windows are from those in raw windows.",
    ),
    (
        "recording_step_error",
        "Step count of a recording, median error",
        percent,
        "0%",
        "How far a pedometer is off that counts all steps of a recording, one window after the other.",
    ),
    (
        "intensity_error",
        "Time by intensity, mean error",
        _points,
        "0",
        "How far the shares of a person's time in low, moderate and high intensity are from raw.",
    ),
)
