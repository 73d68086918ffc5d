"""Balancing the kept classes of one client's data, section 6.1: SMOTE and under-sampling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sensorveil.errors import Refusal

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Windows (n, channels, length), their kept class (n,), their hidden classes (n, attributes)."""


def balanced(data: Data, target: int, neighbours: int, seed: int) -> Data:
    """As many windows of each kept class, `target`.

    Data whose largest class has less than twice the windows of its smallest is balanced already
    and stays as it is.
    """
    classes, sizes = np.unique(data[1], return_counts=True)
    if sizes.max() < 2 * sizes.min():
        return data
    return resampled(data, dict.fromkeys(classes.tolist(), target), neighbours, seed)


def skewed(data: Data, ratio: float, target: int, neighbours: int, seed: int) -> Data:
    """An uneven share of classes, section 7.2.3: R_D times as many windows of some as of others.

    Half of the classes, drawn at random, have `target` windows, the others fewer.
    """
    classes = np.unique(data[1])
    generator = np.random.default_rng(seed)
    many = generator.choice(classes, max(1, len(classes) // 2), replace=False)
    wanted = {int(c): target if c in many else max(1, round(target / ratio)) for c in classes}
    return resampled(data, wanted, neighbours, seed)


def resampled(data: Data, wanted: Mapping[int, int], neighbours: int, seed: int) -> Data:
    """As many windows of each kept class as wanted.

    Small classes get windows between neighbours (SMOTE), large ones lose windows at random. Where
    hidden classes vary within a kept class, each gets an equal part, so that no window is made
    between two hidden classes. A single window has no neighbours and stays.
    """
    signal, kept, hidden = data
    cells, cell = np.unique(np.column_stack([kept, hidden]), axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    parts = np.bincount(cells[:, 0])
    most = {one: wanted[c] // parts[c] for one, c in enumerate(cells[:, 0].tolist())}
    rows, cell = _oversampled(signal.reshape(len(signal), -1), cell, most, neighbours, seed)
    generator = np.random.default_rng(seed)
    chosen = np.concatenate(
        [generator.permutation(np.flatnonzero(cell == one))[:size] for one, size in most.items()]
    )
    rows, cell = rows[chosen], cell[chosen]
    return rows.reshape(-1, *signal.shape[1:]), cells[cell, 0], cells[cell, 1:]


def _oversampled(
    rows: np.ndarray, cell: np.ndarray, wanted: Mapping[int, int], neighbours: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """SMOTE for each class that has too few: among its own windows only."""
    try:
        from imblearn.over_sampling import SMOTE
    except ImportError:
        raise Refusal(
            "balancing needs imbalanced-learn: pip install 'sensorveil[federated]', or balance=0"
        ) from None
    counts = np.bincount(cell)
    few = {one: most for one, most in wanted.items() if 1 < counts[one] < most}
    for one, most in few.items():
        near = min(neighbours, int(counts[one]) - 1)
        made = SMOTE(sampling_strategy={one: most}, k_neighbors=near, random_state=seed)
        rows, cell = made.fit_resample(rows, cell)
    return rows.astype(np.float32), cell
