"""Choosing a learning rate by fixed classifiers on validation windows, for each algorithm alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from sensorveil.errors import Refusal

KINDS = ("read", "read_dense")
"""Accuracies by convolutional and by dense classifiers, as results name them."""

TOLERANCE = 0.07
"""How far from chance the hidden classes may be predicted: for gender, 43 to 57%."""

RULE = (
    "the highest accuracy of the kept class, in the mean of convolutional and dense classifiers and"
    " of all seeds, among learning rates at which both kinds predict hidden classes within"
    f" {100 * TOLERANCE:g} points of an even guess; where there is none, the rate nearest to it"
)


def choose_rates(
    points: Sequence[Mapping[str, Any]], keep: Sequence[str], chance: Mapping[str, float]
) -> dict[str, Any]:
    """The best learning rate of each algorithm by `RULE`, but none that failed with some seed.

    >>> def point(rate, activity, gender):
    ...     read = {"activity": activity, "gender": gender}
    ...     return {"algorithm": "Blinder", "rate": rate, "read": read, "read_dense": read}
    >>> points = [point(0.1, 0.8, 0.5), point(0.2, 0.9, 0.55), point(0.3, 0.95, 0.6)]
    >>> choose_rates(points, ["activity"], {"gender": 0.5})["Blinder"]["rate"]
    0.2
    """
    found: dict[str, Any] = {"rule": RULE}
    for algorithm in dict.fromkeys(point["algorithm"] for point in points):
        own = [point for point in points if point["algorithm"] == algorithm]
        rates = dict.fromkeys(point["rate"] for point in own)
        by_rate = {rate: [point for point in own if point["rate"] == rate] for rate in rates}
        whole = {
            rate: _scores(seeds, keep, chance)
            for rate, seeds in by_rate.items()
            if not any("failed" in point for point in seeds)
        }
        if not whole:
            first = next(point["failed"] for point in own if "failed" in point)
            raise Refusal(f"{algorithm} failed at every rate; the first time: {first}")
        best = max(whole, key=lambda rate: _worth(whole[rate]))
        found[algorithm] = {"rate": best, **whole[best], "of": list(rates)}
    return found


def _scores(
    seeds: Sequence[Mapping[str, Any]], keep: Iterable[str], chance: Mapping[str, float]
) -> dict[str, Any]:
    """What the rule looks at: accuracy of the kept, and how far from chance the hidden is."""

    def mean(kind: str, name: str) -> float:
        return fmean(point[kind][name] for point in seeds)

    kept = fmean(mean(kind, name) for kind in KINDS for name in keep)
    off = max(abs(mean(kind, name) - chance[name]) for kind in KINDS for name in chance)
    return {"kept": kept, "off": off, "within": off <= TOLERANCE, "seeds": len(seeds)}


def _worth(scores: Mapping[str, Any]) -> tuple[bool, float]:
    return scores["within"], scores["kept"] if scores["within"] else -scores["off"]
