"""What applications feel of Seal's output: class, steps, cadence, intensity, with and without epsilon.

    python -m benchmarks.seal_utility --data motionsense --keep activity --hide gender \
        --donors "published under the MIT licence" --out seal-utility.json

Rows are a random training window of the predicted class (resample), Seal with the pool, Seal as it
comes, and Seal with local epsilons whose responses stand for a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sensorveil
from benchmarks.tables import percent
from sensorveil.audit.signals import signal_utility
from sensorveil.audit.utility import kept_attribute
from sensorveil.conditions import conditions
from sensorveil.data.splits import Split
from sensorveil.data.windows import Windows
from sensorveil.files import write_json
from sensorveil.methods.seal_response import epsilon_per_hour

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SHOWN = (
    "frequency_correlation",
    "energy_correlation",
    "spectrum_correlation",
    "cadence_correlation",
    "cadence_error",
    "cadence_reference",
    "recording_step_error",
    "intensity_error",
)


def outputs(
    split: Split, keep: str, hide: Sequence[str], donors: str, settings: Mapping[str, Any]
) -> Iterator[tuple[str, Windows, Windows, float | None]]:
    """Name, training and test output, and epsilon of an hour, of each row."""
    train, test = split.train, split.test
    resample = sensorveil.Resample().fit(train, keep, hide)
    yield "resample", resample.obfuscate(train, seed=0), resample.obfuscate(test, seed=1), None
    made = {"pool": sensorveil.Seal(generator="pool", donors=donors)}
    made["as it comes"] = sensorveil.Seal(**settings)
    for name, seal in made.items():
        seal.fit(train, keep, hide)
        yield f"seal, {name}", seal.obfuscate(train, seed=0), seal.obfuscate(test, seed=1), None
    seconds = seal.settings.privacy.interval_seconds
    for epsilon in EPSILONS:
        strength = {"epsilon": epsilon}
        learnt, hidden = (seal.obfuscate(part, strength, seed=1) for part in (train, test))
        yield f"seal, epsilon {epsilon:g}", learnt, hidden, epsilon_per_hour(epsilon, seconds)


def row(
    split: Split, keep: str, name: str, train: Windows, test: Windows, hour: float | None
) -> dict[str, Any]:
    """One line of the table."""
    kept = kept_attribute([split], [[train]], [[test]], keep, quick=True)
    found = asdict(signal_utility(split.test, test, (keep,)))
    return {
        "output": name,
        **{one.name: percent(one.unchanged.value) for one in kept.applications},
        **{k: None if found[k] is None else round(found[k], 2) for k in SHOWN},
        "epsilon of an hour": hour,
    }


def main() -> None:
    """Measure all rows and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="")
    parser.add_argument("--keep", required=True)
    parser.add_argument("--hide", required=True, help="names, with commas")
    parser.add_argument("--donors", required=True, help="why the pool may emit their windows")
    parser.add_argument("--set", action="append", default=[], help="a setting of Seal: name=value")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    split = sensorveil.load(asked.data, asked.split or None)
    settings = dict(item.split("=", 1) for item in asked.set)
    rows = [row(split, asked.keep, "raw", split.train, split.test, None)]
    origin = split.test.origin
    for made in outputs(split, asked.keep, asked.hide.split(","), asked.donors, settings):
        rows.append(row(split, asked.keep, *made))
        print(rows[-1], flush=True)
        where = {"dataset": asked.data, "split": origin.split if origin else ""}
        title = "Accuracy of small unchanged applications, and what is kept of the movement"
        write_json(
            asked.out,
            {"conditions": conditions(), "data": where, "seeds": [0], "tables": {title: rows}},
        )


if __name__ == "__main__":
    main()
