"""Features of a signal beyond its labels: rhythm, energy, spectrum, steps.

Pure functions on real arrays (n, channels, length), in which channels are in comparable units:
standardise them first, and take the magnitude of complex ones.
"""

from __future__ import annotations

import numpy as np

STEPS = (0.5, 3.0)
"""The band of steps, in Hz."""
CADENCES = (1.0, 3.0)
"""Cadences of people who walk, in Hz: below, a window holds sway and every second step."""
BANDS = 12
"""Bands into which a spectrum is divided, at most."""
FEWEST = 8
"""Windows that a recording must have before a correlation within it is looked at."""

_PADDING = 4  # zeros, in lengths of the signal, that set a spectrum's bins closer together
_SILENT = 1e-12  # power in standard units that has no logarithm worth a word


def power_spectrum(signal: np.ndarray, size: int | None = None) -> np.ndarray:
    """Power of each channel at each frequency above zero, with a Hann taper: (n, channels, bins).

    Bin i is the frequency (i + 1) * sample_rate / size.

    Parameters
    ----------
    signal : array of shape (n, channels, length)
        The signals.
    size : int, optional
        Samples after zeros were added; default: none are added.

    Examples
    --------
    >>> power_spectrum(np.zeros((5, 2, 128))).shape
    (5, 2, 64)
    """
    length = signal.shape[-1]
    taper = np.sin(np.pi * np.arange(length) / length) ** 2
    centred = signal - signal.mean(-1, dtype=np.float64, keepdims=True)
    return np.abs(np.fft.rfft(centred * taper, size, axis=-1)[..., 1:]) ** 2


def dominant_frequency(
    power: np.ndarray,
    sample_rate: float,
    size: int,
    between: tuple[float, float] = (0.0, np.inf),
) -> np.ndarray:
    """The strongest frequency of all channels together, in Hz, one per window.

    A parabola through the logarithm of the peak and its two neighbours interpolates between the
    bins. A window without any power has the frequency 0.

    Parameters
    ----------
    power : array of shape (n, channels, bins)
        What `power_spectrum` gives.
    sample_rate : float
        Samples a second.
    size : int
        Samples of the signals, with the zeros that `power_spectrum` added.
    between : tuple of float, optional
        The lowest and the highest frequency of a peak.

    Examples
    --------
    >>> time = np.arange(128) / 50
    >>> power = power_spectrum(np.sin(2 * np.pi * 2.75 * time)[None, None])
    >>> round(float(dominant_frequency(power, 50.0, 128)[0]), 2)
    2.75
    """
    total = power.sum(1)
    frequency = np.arange(1, total.shape[1] + 1) * sample_rate / size
    is_allowed = (frequency >= between[0]) & (frequency <= between[1])
    rows, peak = np.arange(len(total)), np.where(is_allowed, total, 0.0).argmax(1)
    logs = np.pad(np.log(np.maximum(total, 1e-30)), ((0, 0), (1, 1)), mode="edge")
    left, middle, right = (logs[rows, peak + step] for step in range(3))
    bend = left - 2 * middle + right
    is_inside = (peak > 0) & (peak < total.shape[1] - 1) & (bend < 0)
    shift = np.where(is_inside, (left - right) / np.where(is_inside, 2 * bend, 1.0), 0.0)
    place = peak + 1 + np.clip(shift, -0.5, 0.5)
    has_peak = is_allowed[peak] & (total[rows, peak] > 0)
    return np.where(has_peak, place, 0.0) * sample_rate / size


def energy(signal: np.ndarray) -> np.ndarray:
    """Variance over time, summed over channels: one value per window.

    Examples
    --------
    >>> energy(np.array([[[1.0, -1.0], [2.0, -2.0]]])).tolist()
    [5.0]
    """
    variance: np.ndarray = signal.var(-1, dtype=np.float64)
    return variance.sum(1)


def frequency_and_energy(signal: np.ndarray, sample_rate: float) -> tuple[np.ndarray, np.ndarray]:
    """The dominant frequency of each window, and its energy.

    Examples
    --------
    >>> time = np.arange(128) / 50
    >>> frequency, energy = frequency_and_energy(np.sin(2 * np.pi * 2.75 * time)[None, None], 50.0)
    >>> round(float(frequency[0]), 2), round(float(energy[0]), 2)
    (2.75, 0.5)
    """
    power = power_spectrum(signal)
    return dominant_frequency(power, sample_rate, signal.shape[-1]), energy(signal)


def band_levels(power: np.ndarray) -> np.ndarray:
    """Logarithm of the power in bands that are equally wide on a logarithmic scale.

    Parameters
    ----------
    power : array of shape (n, channels, bins)
        What `power_spectrum` gives.

    Returns
    -------
    array of shape (n, channels * bands)
        There are at most 12 bands, and fewer where low ones would hold no bin.

    Examples
    --------
    >>> band_levels(np.ones((5, 2, 64))).shape
    (5, 22)
    """
    edges = np.geomspace(1, power.shape[-1] + 1, BANDS + 1).round().astype(int)
    sums = np.add.reduceat(power, np.unique(edges)[:-1] - 1, axis=-1)
    return np.log(np.maximum(sums, _SILENT)).reshape(len(power), -1)


def spectrum_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Total variation between two mean spectra (channels, bins): 0 is same, 1 nothing in common.

    Each is divided by its sum first. The distance is half the sum of the absolute differences: the
    share of the power that lies elsewhere. For two spectra without any power it is 0, for one with
    and one without it is 1.

    Examples
    --------
    >>> spectrum_distance(np.array([[1.0, 1.0, 0.0]]), np.array([[0.0, 4.0, 4.0]]))
    0.5
    """
    silent = [not spectrum.sum() > 0 for spectrum in (first, second)]
    if any(silent):
        return 0.0 if all(silent) else 1.0
    return float(np.abs(first / first.sum() - second / second.sum()).sum() / 2)


def acceleration_channels(names: tuple[str, ...]) -> list[int]:
    """Which channels are accelerations, by their names.

    Examples
    --------
    >>> acceleration_channels(("acc_x", "acc_y", "gyro_x")), acceleration_channels(("ax", "wx"))
    ([0, 1], [0])
    """
    lower = [name.lower() for name in names]
    return [i for i, name in enumerate(lower) if "acc" in name or name in ("ax", "ay", "az")]


def step_counts(acceleration: np.ndarray, sample_rate: float) -> np.ndarray:
    """Steps in each signal (n, channels, length) of accelerations in the units recorded.

    The magnitude over channels is filtered to 0.5 to 3 Hz, and to no more than 1.5 times its
    strongest frequency, so that no harmonic counts. Peaks above half of the standard deviation are
    steps. One at the very end is missed: a third of a step a signal on average. The signals may be
    windows or whole recordings.

    Examples
    --------
    >>> time = np.arange(500) / 50
    >>> int(step_counts(1 + 0.3 * np.sin(2 * np.pi * 1.9 * time)[None, None], 50.0)[0])
    19
    """
    size = _size(acceleration)
    smooth = _band(size - size.mean(-1, keepdims=True), sample_rate)
    floor = 0.5 * smooth.std(-1, keepdims=True)
    before, here, after = smooth[:, :-2], smooth[:, 1:-1], smooth[:, 2:]
    return ((here > before) & (here >= after) & (here > floor)).sum(1)


def step_frequency(acceleration: np.ndarray, sample_rate: float) -> np.ndarray:
    """Steps a second in each signal (n, channels, length) of accelerations in the units recorded.

    It is the strongest frequency from 1 to 3 Hz of the magnitude over channels: 60 to 180 steps a
    minute. It is 0 where there is no power.

    Examples
    --------
    >>> time = np.arange(128) / 50
    >>> round(float(step_frequency(1 + np.sin(2 * np.pi * 1.9 * time)[None, None], 50.0)[0]), 2)
    1.9
    """
    length = _PADDING * acceleration.shape[-1]
    power = power_spectrum(_size(acceleration)[:, None], length)
    return dominant_frequency(power, sample_rate, length, CADENCES)


def within_correlation(
    raw: np.ndarray, other: np.ndarray, recording: np.ndarray, fewest: int = FEWEST
) -> float | None:
    """Mean over recordings of the correlation between two values of their windows.

    Differences between people do not count.

    Parameters
    ----------
    raw, other : array of shape (windows,) or (windows, values)
        The values before and after obfuscation; the mean is over recordings and values.
    recording : array of shape (windows,)
        The recording of each window.
    fewest : int, default 8
        Recordings of fewer windows are left out, and those in which `raw` is constant; where only
        `other` is constant, the correlation is 0.

    Returns
    -------
    float or None
        None if all recordings are left out.

    Examples
    --------
    >>> raw, recording = np.arange(20.0), np.arange(20) // 10
    >>> within_correlation(raw, raw + 100 * recording, recording)
    1.0
    """
    before, after = (np.asarray(v, np.float64).reshape(len(recording), -1) for v in (raw, other))
    order = np.argsort(recording, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(recording[order])) + 1)
    found = [_correlations(before[g], after[g]) for g in groups if len(g) >= fewest]
    known = np.concatenate([np.zeros(0), *found])
    return round(float(known.mean()), 12) if len(known) else None


def _correlations(raw: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of each column (n, columns) in which `raw` varies; 0 where only `other` is constant."""
    varies = ~_is_constant(raw)
    a, b = raw[:, varies], other[:, varies]
    a, b, is_flat = a - a.mean(0), b - b.mean(0), _is_constant(b)
    spread = np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return np.where(is_flat, 0.0, (a * b).sum(0) / np.where(is_flat, 1.0, spread))


def _is_constant(values: np.ndarray) -> np.ndarray:
    return np.ptp(values, axis=0) <= 1e-9 * np.abs(values).max(0)


def _size(acceleration: np.ndarray) -> np.ndarray:
    """The magnitude over channels (n, length); one channel may be a magnitude already."""
    exact = acceleration.astype(np.float64)
    return exact[:, 0] if exact.shape[1] == 1 else np.sqrt((exact**2).sum(1))


def _band(signal: np.ndarray, sample_rate: float) -> np.ndarray:
    """Signals (n, length) filtered to the band of steps; mirrored at the ends, against edge effects."""
    length = signal.shape[-1]
    whole = np.concatenate([signal[:, ::-1], signal, signal[:, ::-1]], axis=1)
    content = np.fft.rfft(whole, axis=-1)
    frequency = np.fft.rfftfreq(3 * length, 1 / sample_rate)
    content[:, (frequency < STEPS[0]) | (frequency > STEPS[1])] = 0
    strongest = frequency[np.abs(content).argmax(1)]
    content[frequency > 1.5 * strongest[:, None]] = 0
    return np.fft.irfft(content, 3 * length, axis=-1)[:, length : 2 * length]
