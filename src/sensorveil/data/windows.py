"""Windows: fixed-length slices of recordings, kept as views and copied batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import written_file

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from matplotlib.axes import Axes

UNKNOWN = -1
"""The label of a window whose class is not known."""


@dataclass(frozen=True)
class Origin:
    """Where windows come from; it stands in every run and every result.

    Parameters
    ----------
    dataset, split, fold
        The dataset, the split, and which fold of people is the test.
    protocol : str
        The digest of the protocol.
    subset : {"train", "test", "fitting", "validation"}
        The part of the split.
    """

    dataset: str
    split: str
    fold: int
    protocol: str
    subset: str


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standard units: (x - mean) / deviation.

    Parameters
    ----------
    mean, deviation : array of shape (channels, 1) or (channels, 1, 1) for images
        Complex signals have a complex mean and one real deviation for both parts.
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, windows: Windows) -> Scaling:
        """Statistics per channel over all samples of all windows.

        Examples
        --------
        >>> windows = Windows.from_signal(np.array([[[1.0, 3.0]], [[5.0, 7.0]]]))
        >>> scaling = Scaling.of(windows)
        >>> float(scaling.mean[0, 0]), round(float(scaling.deviation[0, 0]), 3)
        (4.0, 2.236)
        """
        # A sample that k windows share counts k times; counting is cheaper than copying windows.
        weight = windows.coverage() / (len(windows) * windows.length)
        axes = tuple(range(1, windows.store.ndim))
        inner = np.prod(windows.store.shape[1:-1], initial=1.0)
        kind = np.complex128 if windows.is_complex else np.float64
        mean = np.sum(windows.store * weight, axis=axes, keepdims=True, dtype=kind) / inner
        square = np.abs(windows.store - mean) ** 2
        deviation = np.sqrt(np.sum(square * weight, axis=axes, keepdims=True) / inner)
        # A constant channel carries nothing; dividing it by one leaves it at zero.
        deviation[deviation < 1e-12] = 1.0
        return cls(mean.astype(windows.store.dtype), deviation.astype(np.float32))

    def apply(self, signal: np.ndarray) -> np.ndarray:
        """Signal in standard units."""
        return (signal - self.mean) / self.deviation

    def undo(self, signal: np.ndarray) -> np.ndarray:
        """Signal in the units it was recorded in."""
        return signal * self.deviation + self.mean


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
    """Windows of one length, with the labels, person and place that each comes from.

    Windows are views: window i is the slice of the store from `offset[i]`, so windows that overlap
    cost nothing until they are copied, by `batch` or, all at once, by `signal`. An image store is
    (channels, height, width): everything works along the last axis.

    Parameters
    ----------
    store : array of shape (channels, ..., samples)
        All samples, end to end, in the units in which they were recorded.
    offset : array of shape (windows,)
        Where each window begins in the store.
    length : int
        Samples of a window.
    start, recording : array of shape (windows,)
        Where each window begins in its recording, and which one (an index of `recordings`).
    recordings : tuple of str
        The names of the recordings.
    labels : mapping of str to array of shape (windows,)
        The class of each window, or UNKNOWN; `subject` is the person.
    classes : mapping of str to tuple of str
        The names of the classes.
    sample_rate : float
        Samples a second.
    channels : tuple of str
        The names of the channels.
    scaling : Scaling, optional
        Applied while windows are copied.
    origin : Origin, optional
        The dataset and split.
    real : bool, default False
        Whether complex samples are given as pairs of real ones; so it is in standard units.

    Examples
    --------
    >>> windows = Windows.from_signal(np.arange(12.0).reshape(2, 1, 6), {"gender": [0, 1]})
    >>> windows.signal.shape, windows.select([1]).labels["gender"]
    ((2, 1, 6), array([1]))
    >>> windows
    <Windows: 2 of 1 x 6 at 1 Hz, 1 people; gender (0, 1)>
    """

    store: np.ndarray
    offset: np.ndarray
    length: int
    start: np.ndarray
    recording: np.ndarray
    recordings: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    classes: Mapping[str, tuple[str, ...]]
    sample_rate: float
    channels: tuple[str, ...]
    scaling: Scaling | None = None
    origin: Origin | None = None
    real: bool = False

    @classmethod
    def from_signal(
        cls,
        signal: np.ndarray,
        labels: Mapping[str, np.ndarray | list[int]] | None = None,
        sample_rate: float = 1.0,
    ) -> Windows:
        """Windows from an array; each is a recording of its own.

        Parameters
        ----------
        signal : array of shape (windows, channels, length)
            The samples.
        labels : mapping of str to array, optional
            The class of each window, by attribute; without `subject`, all are of one person.
        sample_rate : float, default 1
            Samples a second.
        """
        signal = np.asarray(signal)
        if signal.ndim < 3:
            raise Refusal(f"windows need (n, channels, length); this array is {signal.shape}")
        count = len(signal)
        codes = {name: np.asarray(value) for name, value in (labels or {}).items()}
        codes.setdefault("subject", np.zeros(count, int))
        return cls(
            store=_laid_out(signal),
            offset=np.arange(count) * signal.shape[-1],
            length=signal.shape[-1],
            start=np.zeros(count, int),
            recording=np.arange(count),
            recordings=tuple(str(i) for i in range(count)),
            labels=codes,
            classes={
                name: tuple(str(i) for i in range(int(value.max(initial=0)) + 1))
                for name, value in codes.items()
            },
            sample_rate=sample_rate,
            channels=tuple(str(i) for i in range(signal.shape[1])),
        )

    def __len__(self) -> int:
        return len(self.offset)

    def __repr__(self) -> str:
        size = f"{len(self):,}{' complex' if self.is_complex else ''} of"
        people = len(np.unique(self.subject))
        attributes = (
            f"{name} ({', '.join(classes) if len(classes) <= 5 else f'{len(classes)} classes'})"
            for name, classes in self.classes.items()
            if name != "subject"
        )
        parts = [
            f"{size} {' x '.join(map(str, self.shape))} at {self.sample_rate:g} Hz, {people} people",
            ", ".join(attributes),
        ]
        if self.origin:
            origin = self.origin
            parts.append(f"{origin.dataset}, split {origin.split}, {origin.subset}")
        return f"<Windows: {'; '.join(part for part in parts if part)}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window: (channels, length), or (channels, height, width)."""
        pairs = 2 if self.real and self.store.dtype.kind == "c" else 1
        return (self.store.shape[0] * pairs, *self.store.shape[1:-1], self.length)

    @property
    def is_complex(self) -> bool:
        """Whether the samples are complex numbers, as in CSI."""
        return self.store.dtype.kind == "c" and not self.real

    @property
    def recorded(self) -> Windows:
        """The same windows in the units and the numbers, real or complex, that were recorded."""
        return replace(self, scaling=None, real=False)

    @property
    def subject(self) -> np.ndarray:
        """The person of each window, as a code into `classes["subject"]`."""
        return self.labels["subject"]

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of all attributes, the person among them."""
        return tuple(self.labels)

    def batch(self, index: np.ndarray | slice) -> np.ndarray:
        """A copy of some windows, (n, channels, length), in standard units where scaled."""
        view = np.lib.stride_tricks.sliding_window_view(self.store, self.length, axis=-1)
        return np.ascontiguousarray(
            self._converted(np.moveaxis(view[..., self.offset[index], :], -2, 0))
        )

    def _converted(self, signal: np.ndarray) -> np.ndarray:
        """A signal (n, channels, ..., samples) as recorded, in the units and numbers of `batch`."""
        if self.scaling is None:
            return signal
        signal = self.scaling.apply(signal)
        return to_real(signal) if self.real else signal

    def batches(self, size: int) -> Iterator[np.ndarray]:
        """All windows in order, copied `size` at a time."""
        for first in range(0, len(self), size):
            yield self.batch(slice(first, first + size))

    @property
    def signal(self) -> np.ndarray:
        """A copy of all windows at once: 13 times the recordings at stride 10 of 128."""
        return self.batch(slice(None))

    def on(self, device: str | torch.device) -> DeviceWindows:
        """The windows as tensors on a device, still as views on the recordings there."""
        return DeviceWindows(self, device)

    def scaled(self, scaling: Scaling | None) -> Windows:
        """The same windows, standardised while they are copied; complex ones stay complex."""
        return replace(self, scaling=scaling, real=False)

    def standardized(self, scaling: Scaling) -> Windows:
        """The same windows in standard units and as real numbers (see `to_real`)."""
        return replace(self, scaling=scaling, real=True)

    def select(self, index: np.ndarray | list[int] | list[bool] | slice) -> Windows:
        """Some of the windows, by mask or by position; the recordings stay shared."""
        if isinstance(index, list):
            index = np.asarray(index) if index else np.zeros(0, int)
        return replace(
            self,
            offset=self.offset[index],
            start=self.start[index],
            recording=self.recording[index],
            labels={name: codes[index] for name, codes in self.labels.items()},
        )

    def coverage(self) -> np.ndarray:
        """How many of the windows each sample of the store lies in."""
        total = self.store.shape[-1]
        edges = np.bincount(self.offset, minlength=total + 1).astype(np.int64)
        edges -= np.bincount(self.offset + self.length, minlength=total + 1)
        return np.cumsum(edges)[:total]

    def compact(self) -> Windows:
        """The same windows on a store that holds their samples and no others."""
        used = self.coverage() > 0
        place = np.cumsum(used) - 1
        return replace(
            self, store=np.ascontiguousarray(self.store[..., used]), offset=place[self.offset]
        )

    def replaced(self, signal: np.ndarray) -> Windows:
        """The same windows with another signal of the same shape, in the units recorded."""
        if signal.shape != (len(self), *self.recorded.shape):
            raise ValueError(f"{signal.shape} cannot replace {(len(self), *self.recorded.shape)}")
        return replace(
            self,
            store=_laid_out(signal),
            offset=np.arange(len(self)) * self.length,
            scaling=None,
            real=False,
        )

    def codes(self, attribute: str) -> np.ndarray:
        """The labels of one attribute, or the refusal that lists the known ones."""
        if attribute not in self.labels:
            raise refuse_unknown("attribute", attribute, list(self.labels))
        return self.labels[attribute]

    def joint_codes(self, attributes: Sequence[str]) -> np.ndarray:
        """One number for the classes of several attributes together; UNKNOWN if one is not known.

        Examples
        --------
        >>> labels = {"activity": [0, 1, 1], "gender": [1, 0, UNKNOWN]}
        >>> windows = Windows.from_signal(np.zeros((3, 1, 4)), labels)
        >>> windows.joint_codes(["activity", "gender"])
        array([ 1,  2, -1])
        """
        joint, known = np.zeros(len(self), int), np.ones(len(self), bool)
        for name in attributes:
            joint = joint * len(self.classes[name]) + np.maximum(self.codes(name), 0)
            known &= self.codes(name) != UNKNOWN
        return np.where(known, joint, UNKNOWN)

    def to_frame(self) -> pd.DataFrame:
        """The windows as a table: one row a window, with its place and its classes.

        Returns
        -------
        DataFrame
            Its columns are recording, start (the first sample), seconds, and the attributes.

        Examples
        --------
        >>> windows = Windows.from_signal(np.zeros((2, 1, 6)), {"gender": [1, UNKNOWN]})
        >>> windows.to_frame()["gender"].tolist()
        ['1', nan]
        """
        import pandas as pd

        names = ["subject", *(name for name in self.attributes if name != "subject")]
        return pd.DataFrame(
            {
                "recording": np.array(self.recordings, dtype=object)[self.recording],
                "start": self.start,
                "seconds": self.start / self.sample_rate,
                **{n: pd.Categorical.from_codes(self.labels[n], self.classes[n]) for n in names},
            }
        )

    def plot(self, index: int = 0, ax: Axes | None = None) -> Axes:
        """Draws one window: its channels over time (magnitudes if complex), or an image.

        More than twelve channels are drawn as a map of channels and time.

        Parameters
        ----------
        index : int, default 0
            Which window.
        ax : matplotlib Axes, optional
            Where to draw; default: new axes.

        Examples
        --------
        >>> axes = Windows.from_signal(np.zeros((2, 3, 6))).plot(1)
        >>> len(axes.lines), axes.get_title()
        (3, '1, from 0 s')
        """
        from sensorveil.data.plots import plot_window

        return plot_window(self, index, ax)

    def save(self, path: Path | str) -> None:
        """Writes signal, start, subject, recording and the labels to one .npz file."""
        arrays: dict[str, np.ndarray] = {
            "signal": self.signal,
            "start": self.start,
            "subject": np.array(self.classes["subject"])[self.subject],
            "recording": np.array(self.recordings)[self.recording],
            "sample_rate": np.array(self.sample_rate),
            "channels": np.array(self.channels),
        }
        for name, codes in self.labels.items():
            if name != "subject":
                arrays[f"label_{name}"] = codes
                arrays[f"classes_{name}"] = np.array(self.classes[name])
        with written_file(path) as temporary, open(temporary, "wb") as handle:
            np.savez_compressed(handle, allow_pickle=False, **arrays)


def to_real(signal: np.ndarray) -> np.ndarray:
    """Complex windows as real ones: each channel becomes two, its real and its imaginary part.

    The one way from complex to real; `to_complex` is its inverse. Real windows stay as they are.

    Examples
    --------
    >>> to_real(np.array([[[1 + 2j], [3 + 4j]]])).ravel()
    array([1., 2., 3., 4.])
    """
    if not np.iscomplexobj(signal):
        return signal
    pairs = np.stack([signal.real, signal.imag], axis=2)
    return pairs.reshape(len(signal), 2 * signal.shape[1], *signal.shape[2:])


def to_complex(signal: np.ndarray) -> np.ndarray:
    """Pairs of real channels as complex ones.

    Examples
    --------
    >>> to_complex(np.array([[[1.0], [2.0], [3.0], [4.0]]])).ravel()
    array([1.+2.j, 3.+4.j])
    """
    return signal[:, ::2] + 1j * signal[:, 1::2]


def joint_classes(windows: Windows, attributes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """One class for each combination of several attributes' classes that occurs.

    Returns
    -------
    codes
        The joint class of each window; UNKNOWN where one of the labels is not known.
    combinations
        The classes that each code stands for, (codes, attributes).

    Examples
    --------
    >>> labels = {"activity": [0, 0, 2], "gender": [1, 0, 1]}
    >>> windows = Windows.from_signal(np.zeros((3, 1, 4)), labels)
    >>> codes, combinations = joint_classes(windows, ["activity", "gender"])
    >>> codes.tolist(), combinations.tolist()
    ([1, 0, 2], [[0, 0], [0, 1], [2, 1]])
    """
    columns = np.stack([windows.codes(name) for name in attributes], axis=1)
    known = (columns != UNKNOWN).all(1)
    combinations, inverse = np.unique(columns[known], axis=0, return_inverse=True)
    codes = np.full(len(windows), UNKNOWN)
    codes[known] = inverse.reshape(-1)
    return codes, combinations


def batches(count: int, device: str = "cpu", size: int = 0) -> Iterator[slice]:
    """Rows that go through a network at once: `size`, or 128 on a CPU and 2,048 on a GPU.

    Examples
    --------
    >>> [(rows.start, rows.stop) for rows in batches(300)]
    [(0, 128), (128, 256), (256, 300)]
    """
    size = size or (128 if device == "cpu" else 2048)
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


class DeviceWindows:
    """Windows whose recordings lie on a device; batches are gathered and standardised there.

    Examples
    --------
    >>> import torch
    >>> windows = Windows.from_signal(np.arange(12.0).reshape(2, 1, 6))
    >>> windows.on("cpu")[torch.tensor([1])]
    tensor([[[ 6.,  7.,  8.,  9., 10., 11.]]])
    """

    def __init__(self, windows: Windows, device: str | torch.device) -> None:
        import torch  # not above: listing or loading data does not need it

        store = torch.from_numpy(windows._converted(windows.store[None])[0]).to(device)
        self._view = store.unfold(-1, windows.length, 1)
        self._offset = torch.from_numpy(windows.offset).to(device)
        self.device = store.device

    def __len__(self) -> int:
        return len(self._offset)

    def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
        """Copies of the windows at `index`: (n, channels, length)."""
        return self._view[..., self._offset[index], :].movedim(-2, 0).contiguous()


def _laid_out(signal: np.ndarray) -> np.ndarray:
    """(n, channels, ..., length) as a store (channels, ..., n * length), in single precision."""
    kind = np.complex64 if np.iscomplexobj(signal) else np.float32
    moved = np.moveaxis(signal, 0, -2)
    return np.ascontiguousarray(moved, dtype=kind).reshape(*moved.shape[:-2], -1)
