"""A protocol applied to recordings: one long array of samples with a class for each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.data.protocol import AttributeRule, ChannelRule, Protocol
from sensorveil.data.recordings import Recording, Recordings, shortened
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import written_file

_ABOUT = ("recordings", "classes", "facts", "sample_rate", "channels")
"""What the prepared form holds as JSON; the rest are tensors."""


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Recordings end to end, by the rules of a protocol.

    Parameters
    ----------
    store : array of shape (channels, ..., samples)
        The samples of all recordings.
    first, samples : array of shape (recordings,)
        Where each recording begins in the store, and how long it is.
    recordings : tuple of str
        The names of the recordings.
    labels : mapping of str to array of shape (samples,)
        The class of each sample, the person among them as `subject`.
    classes : mapping of str to tuple of str
        The names of the classes.
    facts : mapping of str to tuple of str
        The labels that hold for whole recordings, as text, for splits by trial and the like.
    sample_rate : float
        Samples a second.
    channels : tuple of str
        The names of the channels.
    """

    store: np.ndarray
    first: np.ndarray
    samples: np.ndarray
    recordings: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    classes: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, tuple[str, ...]]
    sample_rate: float
    channels: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"<Corpus: {len(self.recordings)} recordings of {len(self.classes['subject'])} people,"
            f" {self.hours:.2f} hours at {self.sample_rate:g} Hz, channels"
            f" {shortened(self.channels)}; attributes {', '.join(self.labels)}>"
        )

    @property
    def hours(self) -> float:
        """Recorded time in all."""
        return float(self.samples.sum() / self.sample_rate / 3600)

    def windows(self, length: int, stride: int, required: tuple[str, ...] = ()) -> Windows:
        """All windows that lie in one recording and carry one class of each attribute.

        Parameters
        ----------
        length, stride : int
            Samples of a window, and from one start to the next.
        required : tuple of str
            Attributes whose class must be known.
        """
        starts = [np.arange(0, n - length + 1, stride) for n in self.samples]
        count = [len(s) for s in starts]
        if not sum(count):
            raise Refusal(
                f"no recording is as long as one window ({length} samples; the longest has"
                f" {self.samples.max()}); use a shorter window"
            )
        start = np.concatenate(starts)
        recording = np.repeat(np.arange(len(count)), count)
        offset = self.first[recording] + start
        good = np.ones(len(offset), bool)
        for codes in self.labels.values():
            # A window has one class if no change lies between its first and its last sample.
            changes = np.concatenate([[0], np.cumsum(codes[1:] != codes[:-1])])
            good &= changes[offset] == changes[offset + length - 1]
        for name in required:
            good &= self.labels[name][offset] != UNKNOWN
        if not good.any():
            raise Refusal(
                "no window carries one class of each required attribute"
                f" ({', '.join(required) or 'none is required'}); check the labels and classes"
            )
        offset = offset[good]
        return Windows(
            store=self.store,
            offset=offset,
            length=length,
            start=start[good],
            recording=recording[good],
            recordings=self.recordings,
            labels={name: codes[offset].astype(np.int64) for name, codes in self.labels.items()},
            classes=self.classes,
            sample_rate=self.sample_rate,
            channels=self.channels,
        )

    def save(self, path: Path | str, digest: str) -> None:
        """Writes the prepared form, marked with the digest of its protocol."""
        from safetensors.numpy import save_file

        arrays = {f"label.{name}": codes for name, codes in self.labels.items()}
        arrays |= {"first": self.first, "samples": self.samples}
        arrays["store.real"] = np.ascontiguousarray(self.store.real)
        if np.iscomplexobj(self.store):
            arrays["store.imag"] = np.ascontiguousarray(self.store.imag)
        about = {name: getattr(self, name) for name in _ABOUT}
        with written_file(path) as temporary:
            save_file(arrays, temporary, {"protocol": digest, "about": json.dumps(about)})

    @classmethod
    def read(cls, path: Path, digest: str) -> Corpus | None:
        """Reads the prepared form; None where it was prepared by another protocol."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as file:
                noted = file.metadata() or {}
                if noted.get("protocol") != digest:
                    return None
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise Refusal(f"{path} is damaged ({error}); prepare it again") from None
        try:
            about: dict[str, Any] = json.loads(noted["about"])
            store = arrays["store.real"]
            if "store.imag" in arrays:
                store = store + 1j * arrays["store.imag"]
            return cls(
                store=store,
                first=arrays["first"],
                samples=arrays["samples"],
                labels={k[6:]: v for k, v in arrays.items() if k.startswith("label.")},
                **{name: _with_tuples(about[name]) for name in _ABOUT},
            )
        except KeyError as error:
            raise Refusal(f"{path} is damaged ({error} is missing); prepare it again") from None


def _with_tuples(content: Any) -> Any:
    """What JSON made lists of, as tuples again."""
    if isinstance(content, dict):
        return {name: tuple(values) for name, values in content.items()}
    return tuple(content) if isinstance(content, list) else content


def apply_protocol(protocol: Protocol, raw: Recordings) -> Corpus:
    """Chooses people, recordings and channels, resamples, and turns labels into classes."""
    items = [item for item in raw.items if _is_chosen(protocol, item)]
    if not items:
        raise Refusal(
            f"none of the {len(raw.items)} recordings fits the protocol of {protocol.dataset}"
        )
    people = tuple(dict.fromkeys(item.subject for item in items))
    signals: list[np.ndarray] = []
    labels: dict[str, list[np.ndarray]] = {name: [] for name in (*protocol.attributes, "subject")}
    for item in items:
        signal = _channels(protocol, item, raw.channels)
        signal, source = _resampled(signal, item, raw.sample_rate, protocol.sample_rate)
        if protocol.window.pad is not None:
            signal, source = _padded(signal, source, protocol.window.length, protocol.window.pad)
        signals.append(signal)
        for name, rule in protocol.attributes.items():
            codes = _codes(name, rule, item)
            labels[name].append(
                codes[source] if len(codes) > 1 else np.repeat(codes, signal.shape[-1])
            )
        labels["subject"].append(np.full(signal.shape[-1], people.index(item.subject), np.int16))
    samples = np.array([signal.shape[-1] for signal in signals])
    return Corpus(
        store=np.concatenate(signals, axis=-1),
        first=np.concatenate([[0], np.cumsum(samples)[:-1]]),
        samples=samples,
        recordings=tuple(item.name for item in items),
        labels={name: np.concatenate(codes) for name, codes in labels.items()},
        classes={
            **{name: rule.classes for name, rule in protocol.attributes.items()},
            "subject": people,
        },
        facts=_facts(items),
        sample_rate=protocol.sample_rate,
        channels=tuple(rule.name for rule in protocol.channels) or raw.channels,
    )


def _is_chosen(protocol: Protocol, item: Recording) -> bool:
    if protocol.people and item.subject not in protocol.people:
        return False
    return all(str(item.labels.get(name)) in values for name, values in protocol.where.items())


def _facts(items: list[Recording]) -> dict[str, tuple[str, ...]]:
    """The labels that hold for whole recordings, as text, in the order of the recordings."""
    varying = {n for item in items for n, v in item.labels.items() if isinstance(v, np.ndarray)}
    names = {name for item in items for name in item.labels} - varying
    return {name: tuple(str(item.labels.get(name, "")) for item in items) for name in sorted(names)}


def _channels(protocol: Protocol, item: Recording, names: tuple[str, ...]) -> np.ndarray:
    """The protocol's channels out of the recording's, in single precision."""
    signal = item.signal
    if protocol.channels:
        signal = np.stack([_channel(rule, signal, names) for rule in protocol.channels])
    if protocol.form == "magnitude":
        signal = np.abs(signal)
    return signal.astype(np.complex64 if protocol.form == "complex" else np.float32)


def _channel(rule: ChannelRule, signal: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    for name in rule.sources:
        if name not in names:
            raise refuse_unknown("channel", name, names)
    parts = [signal[names.index(name)] for name in rule.sources]
    if not rule.magnitude_of:
        return parts[0]
    axes = [sum(parts[axis::3]) for axis in range(3)]  # x, y and z of the sum of the vectors
    return np.sqrt(sum(np.square(axis, dtype=np.float64) for axis in axes))


def _resampled(
    signal: np.ndarray, item: Recording, rate: float, wanted: float
) -> tuple[np.ndarray, np.ndarray]:
    """The signal at the wanted rate, and for each new sample the nearest old one."""
    count = signal.shape[-1]
    if item.time is None and rate == wanted:
        return signal, np.arange(count)
    if np.iscomplexobj(signal):
        raise Refusal(
            f"recording '{item.name}' is complex and not at {wanted:g} Hz: packets turn by random"
            " phases, which a filter would cancel; choose packets in the loader"
        )
    from scipy.signal import resample_poly

    if item.time is not None:
        signal = _evenly_sampled(signal, item.time, rate, item.name)
    ratio = Fraction(wanted / rate).limit_denominator(1000)
    # The level of the first sample is taken out, else the filter bends the ends to zero.
    base = signal[..., :1]
    new = resample_poly(signal - base, ratio.numerator, ratio.denominator, axis=-1) + base
    at = np.arange(new.shape[-1]) / wanted
    if item.time is None:
        source = np.rint(at * rate).astype(int)
    else:
        middle = (item.time[1:] + item.time[:-1]) / 2 - item.time[0]
        source = np.searchsorted(middle, at)
    return new.astype(signal.dtype), np.minimum(source, count - 1)


def _evenly_sampled(signal: np.ndarray, time: np.ndarray, rate: float, name: str) -> np.ndarray:
    """Samples at uneven times, interpolated linearly at an even rate."""
    if np.any(np.diff(time) < 0):
        raise Refusal(f"the time of recording '{name}' runs backwards; sort it or leave it out")
    if time[-1] - time[0] < 1 / rate:
        raise Refusal(f"the time of recording '{name}' does not go on; check its time column")
    at = np.arange(time[0], time[-1], 1 / rate)
    rows = signal.reshape(-1, signal.shape[-1])
    even = np.stack([np.interp(at, time, row) for row in rows])
    return even.reshape(*signal.shape[:-1], -1).astype(signal.dtype)


def _padded(
    signal: np.ndarray, source: np.ndarray, length: int, value: float
) -> tuple[np.ndarray, np.ndarray]:
    """The signal cut, or filled up at its end, to one window."""
    signal, source = signal[..., :length], source[:length]
    missing = length - signal.shape[-1]
    ends = [(0, 0)] * (signal.ndim - 1) + [(0, missing)]
    return np.pad(signal, ends, constant_values=value), np.pad(source, (0, missing), mode="edge")


def _codes(name: str, rule: AttributeRule, item: Recording) -> np.ndarray:
    """The class of a recording (one code) or of each of its samples."""
    value = item.labels.get(rule.label or name)
    values = value if isinstance(value, np.ndarray) else np.array([value], dtype=object)
    unique, inverse = np.unique(values.astype(str), return_inverse=True)
    return np.array([_code(name, rule, text) for text in unique], np.int16)[inverse]


def _code(name: str, rule: AttributeRule, text: str) -> int:
    if text in ("None", "nan", ""):
        return UNKNOWN
    if rule.bin_ends:
        try:
            number = float(text)
        except ValueError:
            raise Refusal(f"attribute '{name}' needs numbers; found '{text}'") from None
        return int(np.searchsorted(rule.bin_ends, number, side="left" if rule.up_to else "right"))
    class_name = rule.values.get(text, text)
    return rule.classes.index(class_name) if class_name in rule.classes else UNKNOWN
