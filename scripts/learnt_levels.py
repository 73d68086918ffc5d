"""Prints the table of docs/seal.md on levels that are learnt: python scripts/learnt_levels.py.

Does a third level help, of what windows differ in beyond rhythm and intensity? It is the first
principal component of the spectrum within recordings of the donors, where rhythm and intensity are
taken out. People of MotionSense who are nobody's donors wear it, true classes are told, and the
donors' windows of their codes are what comes out.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

import sensorveil
from sensorveil.data.signal_features import power_spectrum, within_correlation
from sensorveil.data.windows import Scaling, Windows
from sensorveil.measures.counting import counted_advantage, people_folds
from sensorveil.methods.seal_code import RECORDING, Movement, Past, offered
from sensorveil.progress import track

FOLDS = range(4)
SIZES = ((9, 5, 1), (9, 5, 3), (9, 5, 5), (9, 3, 3), (5, 3, 3), (7, 3, 1), (1, 1, 1))
BANDS = 12
MEMORY = 600


def bands(windows: Windows) -> np.ndarray:
    """The logarithm of the power in bands of each channel: (n, bands)."""
    power = power_spectrum(windows.signal)[..., 1:]
    edges = np.unique(np.geomspace(1, power.shape[-1], BANDS + 1).astype(int)) - 1
    sums = np.add.reduceat(power, edges[:-1], axis=-1)
    return np.log(np.maximum(sums, 1e-9)).reshape(len(windows), -1)


def centred(values: np.ndarray, recording: np.ndarray) -> np.ndarray:
    """Without each recording's mean."""
    _, which, counts = np.unique(recording, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, which, values)
    return values - (sums / counts[:, None])[which]


class Learnt:
    """What donors' windows differ in most within a recording, beyond rhythm and intensity."""

    def __init__(self, donors: Windows, movement: Movement) -> None:
        own = centred(bands(donors), donors.recording)
        told = centred(movement.values, donors.recording)
        self.slope = np.linalg.lstsq(told, own, rcond=None)[0]
        self.direction = np.linalg.svd(own - told @ self.slope, full_matrices=False)[2][0]

    def values(self, windows: Windows, movement: Movement) -> np.ndarray:
        """One number for each window."""
        return (bands(windows) - movement.values @ self.slope) @ self.direction


def ranks(values: np.ndarray, windows: Windows, classes: np.ndarray) -> np.ndarray:
    """Where each value lies among earlier ones of its class in the recording, from 0 to 1."""
    pasts, found = defaultdict(lambda: Past(MEMORY)), np.empty(len(values))
    for place in np.lexsort([windows.start, windows.recording]).tolist():
        key = (windows.recording[place], classes[place])
        found[place] = pasts[key].rank(float(values[place]), 1.0)
    return found


def worn(all_ranks: np.ndarray, classes: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The code of each wearer's window, by ranks in their own past."""
    levels = np.minimum((all_ranks * np.array(sizes)).astype(int), np.array(sizes) - 1)
    return np.ravel_multi_index((classes, *levels.T), (classes.max() + 1, *sizes))


def given(values: np.ndarray, classes: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The code of each donor's window: each level parts the one before into equal shares."""
    codes = classes.copy()
    for column, size in zip(values.T, sizes, strict=True):
        finer = np.empty_like(codes)
        for one in np.unique(codes):
            mine = np.flatnonzero(codes == one)
            place = np.empty(len(mine), int)
            place[np.argsort(column[mine], kind="stable")] = np.arange(len(mine))
            finer[mine] = one * size + place * size // len(mine)
        codes = finer
    return codes


def one_fold(fold: int) -> dict[tuple[int, int, int], list[float]]:
    """By sizes: correlations of frequency, energy and bands; what counting tells of gender."""
    split = sensorveil.load("motionsense", "subject", fold=fold)
    scaling = Scaling.of(split.fitting)
    donors, wearers = split.fitting.scaled(scaling), split.validation.scaled(scaling)
    kept = [w.codes("activity") for w in (donors, wearers)]
    both = [*zip((donors, wearers), kept, strict=True)]
    moves = [Movement.of(windows, classes, RECORDING, MEMORY) for windows, classes in both]
    learnt = Learnt(donors, moves[0])
    third = [learnt.values(one[0], move) for one, move in zip(both, moves, strict=True)]
    in_past = [
        np.column_stack([move.ranks, ranks(values, *one)])
        for one, move, values in zip(both, moves, third, strict=True)
    ]
    usual, noise = np.flatnonzero(offered(donors, moves[0])), np.random.default_rng(fold)
    values = np.column_stack([moves[0].values, third[0]])[usual]
    before, after = bands(wearers), bands(donors)
    found = {}
    for sizes in SIZES:
        codes, offer = worn(in_past[1], kept[1], sizes), given(values, kept[0][usual], sizes)
        drawn = usual[[noise.choice(np.flatnonzero(offer == code)) for code in codes]]
        own = np.column_stack([np.exp(moves[1].values), before])
        out = np.column_stack([np.exp(moves[0].values), after])[drawn]
        alike = [
            within_correlation(a, b, wearers.recording) or 0.0
            for a, b in zip(own.T, out.T, strict=True)
        ]
        told = worn(in_past[0], kept[0], sizes)
        tells = counted_advantage(
            told, donors.codes("gender"), donors.subject, people_folds(donors.subject)
        )
        found[sizes] = [alike[0], alike[1], float(np.mean(alike[2:])), 100 * tells]
    return found


def table() -> list[str]:
    """The table, a line each."""
    folds = [one_fold(fold) for fold in track([*FOLDS], "folds")]
    lines = ["| levels | frequency | energy | spectrum | gender, points |", "|---|---|---|---|---|"]
    for sizes in SIZES:
        row = np.mean([fold[sizes] for fold in folds], axis=0)
        levels = " x ".join(map(str, sizes))
        lines.append(f"| {levels} | {row[0]:.2f} | {row[1]:.2f} | {row[2]:.2f} | {row[3]:.1f} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
