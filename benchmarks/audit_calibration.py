"""How often the audit is wrong about output that leaks nothing: runs on simulated people.

    python -m benchmarks.audit_calibration --people 60 --runs 40 --out results.json

People of two genders walk or sit; raw windows show both. The output is drawn from training windows
of the true class, so it says nothing about the gender of the test people. (Of a predicted class it may:
errors of a classifier can depend on the gender.)
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.audit.attackers import Budget, list_attackers
from sensorveil.audit.results import RAW, WORST_FIRST, AttributeAudit
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.threat_models import Fold, obfuscate_fold, train_shadow_obfuscator
from sensorveil.conditions import conditions
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.files import write_json
from sensorveil.methods.base import Capabilities, Obfuscator
from sensorveil.parallel import cores, parallel


def simulated(people: int, windows: int, seed: int) -> Split:
    """As many people again are the training; levels of two channels are activity and gender."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(2 * people), windows)
    place = np.tile(np.arange(windows), 2 * people)
    activity, gender = place * 2 // windows, person % 2
    levels = np.stack([activity - 0.5, gender - 0.5], axis=1)
    levels += 0.3 * rng.normal(size=levels.shape)
    signal = levels[..., None] + 0.1 * rng.normal(size=(len(person), 2, 32))
    recording = 2 * person + activity
    whole = replace(
        Windows.from_signal(signal, {"activity": activity, "gender": gender, "subject": person}),
        recording=recording,
        start=place,
        recordings=tuple(str(number) for number in range(4 * people)),
    )
    test = rng.permutation(2 * people)[person] < people
    train = whole.select(~test)
    held = train.subject % 5 == 0
    return Split(train, whole.select(test), train.select(~held), train.select(held))


class SilentOutput(Obfuscator):
    """A random training window of the wearer's true class."""

    name = "silent-output"
    summary = "a random training window of the true class"
    capabilities = Capabilities(needs_wearer=True)

    def _fit(self, windows: Windows, rng: np.random.Generator) -> None:
        self.pool_ = windows

    def _obfuscate(
        self, windows: Windows, strength: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        donors, wanted = (one.codes("activity") for one in (self.pool_, windows))
        drawn = [rng.choice(np.flatnonzero(donors == activity)) for activity in wanted]
        return self.pool_.batch(np.array(drawn))


def run(people: int, windows: int, seed: int) -> AttributeAudit:
    """One audit with all attackers and small networks."""
    split = simulated(people, windows, seed)
    obfuscator = SilentOutput(seed=seed).fit(split.train, "activity", "gender")
    fold = Fold(obfuscator, split, train_shadow_obfuscator(obfuscator, split))
    budget = replace(Budget.quick(), attackers=list_attackers(), look_windows=100)
    outputs = {(0, seed): obfuscate_fold(fold, None, seed, budget)}
    (found,) = run_attacks([fold], outputs, ["gender"], [seed], budget)
    return found


def main() -> None:
    """Run, count the verdicts, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=60)
    parser.add_argument("--windows", type=int, default=40, help="windows of each person")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    jobs = [
        partial(run, asked.people, asked.windows, asked.first + seed) for seed in range(asked.runs)
    ]
    found = parallel(jobs, "audits", asked.workers)
    verdicts = [_described(part) for part in found]
    result = content(verdicts, asked.people, asked.windows, asked.first)
    write_json(asked.out, {"conditions": conditions("cpu"), **result})
    print(result["tables"])


def _described(part: AttributeAudit) -> dict[str, Any]:
    """One verdict, and how close it was."""
    attacks = [one for one in part.attacks if one.threat_model != RAW]
    return {
        "status": part.verdict.status,
        "reason": part.verdict.reason,
        "cross_fitted": part.cross_fitted,
        "largest_advantage": max(one.advantage.value for one in attacks),
        "smallest_p_value": min(
            *(one.p_value for one in attacks), *(one.p_value for one in part.sessions)
        ),
    }


def content(
    verdicts: Sequence[Mapping[str, Any]], people: int, windows: int, first: int
) -> dict[str, Any]:
    """What is stored: all verdicts, and a table that counts them.

    >>> content([{"status": "hidden", "smallest_p_value": 0.2}], 60, 40, 0)["seeds"]
    ['0 to 0']
    """
    counts = Counter(one["status"] for one in verdicts)
    row = {
        "people": people,
        "windows of each": windows,
        "runs": len(verdicts),
        **{status: counts[status] for status in reversed(WORST_FIRST)},
        "smallest p-value": min(one["smallest_p_value"] for one in verdicts),
    }
    return {
        "data": "simulated people",
        "seeds": [f"{first} to {first + len(verdicts) - 1}"],
        "tables": {"Verdicts on output that leaks nothing": [row]},
        "verdicts": list(verdicts),
    }


if __name__ == "__main__":
    main()
