"""The positive control: a leak of known size, planted in the very output that is audited."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import UNKNOWN, Scaling, Windows

PLANTED = 0.10
"""The advantage over the majority that the planted leak gives to a perfect attacker."""


def planted_share(largest: float, planted: float = PLANTED) -> float:
    """The share of windows that must carry the mark: share * (1 - majority) = planted.

    >>> planted_share(0.6)
    0.25
    """
    return min(1.0, planted / max(1 - largest, 1e-9))


def plant(
    windows: Windows, codes: np.ndarray, classes: int, share: float, rng: np.random.Generator
) -> Windows:
    """Add to a random share of the windows a tone whose pitch depends on the class.

    Nothing else is changed. An attacker who finds this, and nothing in the output itself, is strong
    enough to have found a leak of this size.
    """
    marked = (rng.random(len(windows)) < share) & (codes != UNKNOWN)
    deviation = Scaling.of(windows).deviation
    # Pitches lie evenly between zero and half the sampling rate, in cycles per sample.
    pitch = (codes[marked] + 1) / (2 * (classes + 1))
    phase = rng.random(int(marked.sum()))
    time = np.arange(windows.length)
    tone = np.sin(2 * np.pi * (pitch[:, None] * time + phase[:, None]))
    signal = windows.signal
    shape = (len(tone), *(1,) * (signal.ndim - 2), windows.length)
    signal[marked] = signal[marked] + 1.5 * deviation * tone.reshape(shape)
    return windows.replaced(signal)


_PITCHES = np.linspace(0.08, 0.42, 8)  # cycles per sample


def plant_identity(
    windows: Windows, share: float, rng: np.random.Generator
) -> tuple[Windows, np.ndarray]:
    """Add a chord to a random share of the recordings: half of eight tones, each person's own.

    The eight pitches are the same for all people, so that a linker can learn them on some people.
    Returns the windows, and which of them are marked.
    """
    recordings = np.unique(windows.recording)
    marked = np.isin(windows.recording, recordings[rng.random(len(recordings)) < share])
    people, person = np.unique(windows.subject, return_inverse=True)
    chords = np.array([_chord(rng) for _ in people])[person[marked]]
    phase = rng.random((*chords.shape, 1))
    turns = _PITCHES[:, None] * np.arange(windows.length) + phase
    tone = (chords[..., None] * np.sin(2 * np.pi * turns)).sum(1)
    signal = windows.signal
    shape = (len(tone), *(1,) * (signal.ndim - 2), windows.length)
    signal[marked] = signal[marked] + 2 * Scaling.of(windows).deviation * tone.reshape(shape)
    return windows.replaced(signal), marked


def _chord(rng: np.random.Generator) -> np.ndarray:
    """Half of the tones, with a power of one in all."""
    half = len(_PITCHES) // 2
    return np.isin(np.arange(2 * half), rng.permutation(2 * half)[:half]) / np.sqrt(half)
