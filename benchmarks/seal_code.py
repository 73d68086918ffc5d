"""What each bit of Seal's code buys in utility, and costs in leakage.

    python -m benchmarks.seal_code --data motionsense --keep activity --hide gender --out seal-code.json

A quarter of the training recordings is validation. For each choice of bins the true class and the
ranks of validation windows make a code, and a random window of that code from the other recordings
stands for the output. Utility is how well its rhythm, energy and spectrum follow those of the
validation window within recordings. Leakage is what two attackers predict of people whom they know
from other recordings: one counts the codes of single windows, one learns from the moments of the
codes of up to 60 windows of one recording. No test window takes part.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sensorveil
from sensorveil.audit.signals import signal_utility
from sensorveil.classifiers import Ensemble
from sensorveil.conditions import conditions
from sensorveil.data.windows import Scaling, Windows, joint_classes
from sensorveil.files import write_json
from sensorveil.methods.seal_code import FEATURES, Encoder, Movement, donor_mask
from sensorveil.methods.seal_generators import GenerationSettings, Pool
from sensorveil.methods.seal_search import counted_advantage
from sensorveil.progress import track

BINS = ((1, 1, 1), (3, 1, 1), (9, 1, 1), (9, 3, 1), (9, 5, 1), (9, 9, 1), (9, 5, 3), (9, 5, 5))
"""Bins of rhythm, energy and sharpness that are tried."""
SESSION = 60
"""The most windows of a session."""


def session_moments(
    codes: np.ndarray, encoder: Encoder, recording: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments of the bins of each session, and the row of its first window.

    They are the share of each class, and the mean, the products and the products with the window
    before of all bins. A session has up to 60 windows of one recording in order.
    """
    classes, bins = encoder.parts(codes)
    centred = (bins + 0.5) / np.array(encoder.bins) - 0.5
    rows, first = [], []
    for one in np.unique(recording):
        mine = np.flatnonzero(recording == one)
        mine = mine[np.argsort(start[mine])]
        for part in np.array_split(mine, max(1, len(mine) // SESSION)):
            shares = np.bincount(classes[part], minlength=encoder.num_classes_) / len(part)
            z, later, before = centred[part], centred[part[1:]], centred[part[:-1]]
            products = (z.T @ z / len(z), later.T @ before / max(len(later), 1))
            moments = np.concatenate([z.mean(0), *(one.ravel() for one in products)])
            rows.append(np.concatenate([shares, np.outer(shares, moments).ravel()]))
            first.append(part[0])
    return np.array(rows), np.array(first)


def session_accuracy(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]
) -> tuple[float, float]:
    """Accuracy of logistic regression on moments, and the majority baseline of the test."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.02, max_iter=1000))
    predicted = model.fit(*train).predict(test[0])
    return float((predicted == test[1]).mean()), float(np.bincount(test[1]).max() / len(test[1]))


def measure(
    train: Windows, held: Windows, keep: str, hide: Sequence[str], bins: tuple[int, ...]
) -> dict[str, Any]:
    """One row: bits of a code beyond the class, utility, and leakage of each attribute."""
    scaling = Scaling.of(train)
    own = [windows.standardized(scaling) for windows in (train, held)]
    known, movement = (
        Movement.of(windows, joint_classes(windows, (keep,))[0], "recording", 600)
        for windows in own
    )
    donors = donor_mask(own[0], known)
    encoder = Encoder(bins).fit(known.select(donors), int(known.classes.max()) + 1)
    pool = Pool(GenerationSettings(), encoder, Ensemble(1))
    pool.fit(own[0].select(donors), known.select(donors))
    learnt, codes = encoder.encode(known), encoder.encode(movement)
    output = held.replaced(scaling.undo(pool.generate(codes, np.random.default_rng(0))))
    kept = signal_utility(held, output, (keep,))
    row: dict[str, Any] = {
        "bins": " x ".join(map(str, bins)),
        "bits": round(math.log2(math.prod(bins)), 1),
        **{
            name: None if value is None else round(value, 2)
            for name, value in (
                ("rhythm", kept.frequency_correlation),
                ("energy", kept.energy_correlation),
                ("spectrum", kept.spectrum_correlation),
            )
        },
    }
    both = ((learnt, train), (codes, held))
    sessions = [session_moments(one, encoder, w.recording, w.start) for one, w in both]
    together = np.concatenate([learnt, codes])
    fold = np.repeat([0, 1], [len(train), len(held)])
    for name in hide:
        gained = _windows_advantage(together, fold, train, held, name)
        pairs = [
            (rows, windows.codes(name)[first])
            for (rows, first), (_, windows) in zip(sessions, both, strict=True)
        ]
        accuracy, majority = session_accuracy(*pairs)
        row[f"{name}: windows"] = f"{100 * gained:+.1f}"
        row[f"{name}: sessions"] = f"{100 * (accuracy - majority):+.1f}"
    return row


def _windows_advantage(
    codes: np.ndarray, fold: np.ndarray, train: Windows, held: Windows, name: str
) -> float:
    """Of an attacker who counts codes in the one part and predicts in the other, both ways."""
    labels = np.concatenate([train.codes(name), held.codes(name)])
    person = np.concatenate([train.subject, held.subject])
    return counted_advantage(codes, labels, person, fold)


def content(rows: Sequence[Mapping[str, Any]], data: str, split: str) -> dict[str, Any]:
    """What is stored.

    >>> list(content([{"bins": "1 x 1 x 1"}], "watch", "recording")["tables"].values())
    [[{'bins': '1 x 1 x 1'}]]
    """
    title = (
        f"Bins of {', '.join(FEATURES)}: correlations within recordings that the code buys, and"
        " points above the majority baseline that attackers gain (the baseline of windows counts"
        " people alike)"
    )
    return {"data": {"dataset": data, "split": split}, "seeds": [0], "tables": {title: rows}}


def main() -> None:
    """Measure all bins and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="")
    parser.add_argument("--keep", required=True)
    parser.add_argument("--hide", required=True, help="names, with commas")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    split = sensorveil.load(asked.data, asked.split or None)
    hide, windows = asked.hide.split(","), split.train
    recordings = np.random.default_rng(0).permutation(np.unique(windows.recording))
    held = np.isin(windows.recording, recordings[: len(recordings) // 4])
    rows = [
        measure(windows.select(~held), windows.select(held), asked.keep, hide, bins)
        for bins in track(BINS, "codes")
    ]
    for row in rows:
        print(row)
    origin = split.test.origin
    made = content(rows, asked.data, origin.split if origin else "")
    write_json(asked.out, {"conditions": conditions(), **made})


if __name__ == "__main__":
    main()
