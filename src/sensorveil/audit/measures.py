"""Measures of what survives: numbers from raw windows and their obfuscated counterparts.

The audit's page shows every registered measure. `signals.py` has those that come with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal

Function = Callable[[Windows, Windows], float | None]
"""From raw windows and their output, in the same order, to a number; None where it means nothing."""


@dataclass(frozen=True)
class Measured:
    """The value of one registered measure."""

    name: str
    summary: str
    value: float | None


_MEASURES: dict[str, tuple[str, Function]] = {}


def register_measure(name: str, summary: str) -> Callable[[Function], Function]:
    """Function decorator that adds a measure to every audit.

    Parameters
    ----------
    name
        The name on the page.
    summary
        One sentence: what it is, in which unit, and which value is good.

    Examples
    --------
    >>> @register_measure("largest value", "Largest sample of the output over that of raw data.")
    ... def largest_value(raw, hidden):
    ...     return float(hidden.signal.max() / raw.signal.max())
    >>> from sensorveil.methods.conformance import example_windows
    >>> windows = example_windows()
    >>> measure_all(windows, windows)[0].value
    1.0
    >>> unregister_measure("largest value")
    """

    def register(function: Function) -> Function:
        if name in _MEASURES and _MEASURES[name][1].__qualname__ != function.__qualname__:
            raise Refusal(f"a measure is named '{name}' already")
        _MEASURES[name] = (summary, function)
        return function

    return register


def unregister_measure(name: str) -> None:
    """Take a measure out again."""
    del _MEASURES[name]


def measure_all(raw: Windows, hidden: Windows) -> tuple[Measured, ...]:
    """The values of all registered measures."""
    return tuple(
        Measured(name, summary, function(raw, hidden))
        for name, (summary, function) in _MEASURES.items()
    )
