"""Choosing a rate by what fixed models read of validation windows, for each algorithm alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from sensorveil.errors import Refusal

WITHIN = 0.07
"""How far from an even guess the hidden classes may be read: for gender, 43 to 57%."""

RULE = (
    "the highest share of windows whose kept class is read right, in the mean of convolutional and"
    " dense models and of all seeds, among rates at which both kinds read hidden classes right"
    f" within {100 * WITHIN:g} points of an even guess; where there is none, the rate nearest to it"
)

KINDS = ("read", "read_dense")


def chosen(
    points: Sequence[Mapping[str, Any]], keep: Sequence[str], even: Mapping[str, float]
) -> dict[str, Any]:
    """The best rate of each algorithm by `RULE`; `even` has each hidden attribute's even guess.

    A rate that failed with some seed is none to choose.

    >>> def point(rate, activity, gender):
    ...     read = {"activity": activity, "gender": gender}
    ...     return {"algorithm": "Blinder", "rate": rate, "read": read, "read_dense": read}
    >>> points = [point(0.1, 0.8, 0.5), point(0.2, 0.9, 0.55), point(0.3, 0.95, 0.6)]
    >>> chosen(points, ["activity"], {"gender": 0.5})["Blinder"]["rate"]
    0.2
    """
    found: dict[str, Any] = {"rule": RULE}
    for algorithm in dict.fromkeys(point["algorithm"] for point in points):
        own = [point for point in points if point["algorithm"] == algorithm]
        rates = dict.fromkeys(point["rate"] for point in own)
        by_rate = {rate: [point for point in own if point["rate"] == rate] for rate in rates}
        whole = {
            rate: _judged(seeds, keep, even)
            for rate, seeds in by_rate.items()
            if not any("failed" in point for point in seeds)
        }
        if not whole:
            first = next(point["failed"] for point in own if "failed" in point)
            raise Refusal(f"{algorithm} failed at every rate; the first time: {first}")
        best = max(whole, key=lambda rate: _worth(whole[rate]))
        found[algorithm] = {"rate": best, **whole[best], "of": list(rates)}
    return found


def _judged(
    seeds: Sequence[Mapping[str, Any]], keep: Iterable[str], even: Mapping[str, float]
) -> dict[str, Any]:
    """What the rule looks at: how much of the kept is read, and how unevenly the hidden."""
    kept = fmean(_mean(seeds, kind, name) for kind in KINDS for name in keep)
    off = max(abs(_mean(seeds, kind, name) - even[name]) for kind in KINDS for name in even)
    return {"kept": kept, "off": off, "within": off <= WITHIN, "seeds": len(seeds)}


def _mean(seeds: Sequence[Mapping[str, Any]], kind: str, name: str) -> float:
    return fmean(point[kind][name] for point in seeds)


def _worth(judged: Mapping[str, Any]) -> tuple[bool, float]:
    return judged["within"], judged["kept"] if judged["within"] else -judged["off"]
