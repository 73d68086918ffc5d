"""Attacks output that lies in a file: several draws of a dataset's training and test windows.

    python -m benchmarks.stored_output obscurenet.npz --data motionsense --keep activity \
        --hide gender --device cuda --out obscurenet.json

The file holds two arrays, `train` and `test`, of shape (draws, windows, channels, length): the output
of any method, or of an older version of it, for the windows of the split in their order. Attackers
see raw windows and the output, but no method and no condition.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import sensorveil
from benchmarks.tables import percent
from sensorveil.audit.attackers import Budget
from sensorveil.audit.criterion import point_windows
from sensorveil.audit.results import AttributeAudit
from sensorveil.audit.runner import run_attacks
from sensorveil.audit.store import Store
from sensorveil.audit.threat_models import Fold, Output, stacked
from sensorveil.conditions import conditions
from sensorveil.data.splits import Split
from sensorveil.files import write_json
from sensorveil.methods.policy import Policy
from sensorveil.parallel import cores

TITLE = (
    "The best attackers on 20 or 60 windows of one recording or person (the largest of many"
    " accuracies, so biased upwards; the command says which attackers took part)"
)
BUDGETS = {"full": Budget, "quick": Budget.quick}


def output_of(split: Split, place: Path, draws: int) -> Output:
    """The output in a file as attackers are given it."""
    with np.load(place, allow_pickle=False) as found:
        train, test = found["train"][:draws], found["test"][:draws]
    return Output(
        chosen=np.tile(np.arange(len(split.train)), len(train)),
        train=stacked([split.train.replaced(one) for one in train]),
        tests=tuple(split.test.replaced(one) for one in test),
    )


def summary(found: AttributeAudit) -> dict[str, Any]:
    """What the best attackers of windows and of sessions reach, and the verdict."""
    return {
        "attribute": found.attribute,
        "verdict": found.verdict.status,
        "majority": found.majority,
        "windows": found.worst.accuracy.value,
        "sessions": [
            {
                "sessions": point_windows(point),
                "accuracy": point.accuracy.value,
                "majority": point.majority,
                "attacker": point.attacker,
                "threat model": point.threat_model,
                "p-value": point.p_value,
            }
            for point in found.sessions
        ],
    }


def content(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """What is stored: all figures, and a table of the best attackers on 20 and 60 windows.

    Parameters
    ----------
    results
        For each output the summaries of its attributes.

    Examples
    --------
    >>> point = {"sessions": "60 windows of one person", "accuracy": 0.9, "majority": 0.6}
    >>> one = {"attribute": "gender", "verdict": "not hidden", "majority": 0.57, "windows": 0.58}
    >>> (rows,) = content({"blinder": [{**one, "sessions": [point]}]})["tables"].values()
    >>> rows[0]["accuracy"]
    '90.0'
    """
    rows = []
    for output, attributes in results.items():
        for one in attributes:
            many = [point for point in one["sessions"] if point["sessions"][:2] in ("20", "60")]
            best: Mapping[str, Any] = max(
                many, key=lambda point: point["accuracy"] - point["majority"], default={}
            )
            figures = {
                "majority of windows": one["majority"],
                "accuracy of windows": one["windows"],
                "accuracy": best.get("accuracy"),
                "majority": best.get("majority"),
            }
            shown = {name: percent(value) for name, value in figures.items()}
            about = {"output": output, "attribute": one["attribute"], "verdict": one["verdict"]}
            rows.append({**about, **best, **shown})
    return {
        "seeds": [0],
        "tables": {TITLE: rows},
        "results": results,
    }


def main() -> None:
    """Attack each file's output and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outputs", type=Path, nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="")
    parser.add_argument("--keep", required=True)
    parser.add_argument("--hide", required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--budget", choices=list(BUDGETS), default="full")
    parser.add_argument("--attackers", help="names, with commas; default: all of the budget")
    parser.add_argument("--session-attackers", help="likewise")
    parser.add_argument("--set", action="append", default=[], help="sessions.filters=0, windows=…")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", type=Path, help="where predictions are kept")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    split = sensorveil.load(asked.data, asked.split or None)
    policy = Policy.of(asked.keep, asked.hide)
    budget = _budget(asked)
    names = [name for name in split.train.attributes if name not in policy.keep]
    results: dict[str, list[dict[str, Any]]] = {}
    made: dict[str, Any] = {"tables": {}}
    for place in asked.outputs:
        output = output_of(split, place, asked.draws)
        fold = Fold(None, split, given_policy=policy)
        workers = cores() if asked.device == "cpu" else 1
        store = Store(asked.store, [str(place), place.stat().st_mtime, asdict(budget)])
        begin = time.perf_counter()
        found = run_attacks(
            [fold], {(0, 0): output}, names, (0,), budget, asked.device, store, workers
        )
        print(f"{place.stem}: {time.perf_counter() - begin:.0f} seconds")
        results[place.stem] = [summary(one) for one in found]
        made = content(results)
        origin = {
            "dataset": asked.data,
            "split": split.test.origin.split if split.test.origin else "",
        }
        write_json(asked.out, {"conditions": conditions(asked.device), "data": origin, **made})
    for rows in made["tables"].values():
        for row in rows:
            print(row)


def _budget(asked: argparse.Namespace) -> Budget:
    budget = BUDGETS[asked.budget]()
    changes: dict[str, Any] = {}
    sessions: dict[str, Any] = {}
    for name, option in (
        ("attackers", asked.attackers),
        ("session_attackers", asked.session_attackers),
    ):
        if option is not None:
            changes[name] = tuple(one for one in option.split(",") if one)
    for item in asked.set:
        name, value = item.split("=")
        inside = name.removeprefix("sessions.")
        (changes if inside == name else sessions)[inside] = int(value)
    return replace(budget, sessions=replace(budget.sessions, **sessions), **changes)


if __name__ == "__main__":
    main()
