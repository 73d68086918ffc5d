"""The smartwatch recordings inside the PyPI package seglearn: real data that installs with us."""

from __future__ import annotations

import hashlib
import io
import pickle
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

_FILE = "seglearn/data/watch_dataset.npy"
_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
_SIDES = {0.0: "left", 1.0: "right"}


class Watch(Dataset):
    """Seven shoulder exercises by ten people, with a watch on the left or the right wrist."""

    name = "watch"

    def locate(self, source: Path | None = None) -> Path:
        """The file inside the installed package; the package itself is never imported."""
        if source is not None:
            return super().locate(source)
        try:
            return Path(str(metadata.distribution("seglearn").locate_file(_FILE)))
        except metadata.PackageNotFoundError:
            raise Refusal(f"watch: not installed. To get it, {self.card.obtain}") from None

    def read(self, source: Path) -> Recordings:
        """Reads the 140 recordings."""
        if not source.is_file():
            raise Refusal(f"watch: {source} is missing. To get it, {self.card.obtain}")
        content = _read_known_pickle(source)
        items = []
        for index, signal in enumerate(content["X"]):
            person = f"{int(content['subject'][index]):02d}"
            exercise = content["y_labels"][int(content["y"][index])]
            side = _SIDES[float(content["side"][index])]
            items.append(
                Recording(
                    name=f"{person}-{exercise}-{side}",
                    subject=person,
                    signal=np.ascontiguousarray(signal.T, dtype=np.float32),
                    labels={"exercise": exercise, "side": side},
                )
            )
        return Recordings.by_name(items, tuple(content["X_labels"]), sample_rate=50.0)


class _ArraysOnly(pickle.Unpickler):
    """Rebuilds arrays and nothing else: any other name in the file is refused."""

    _allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): lambda text, kind: text.encode(kind),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise Refusal(f"watch: the file asks for {module}.{name}, which is not allowed")
        return self._allowed[module, name]


def _read_known_pickle(path: Path) -> dict[str, Any]:
    """The authors publish a pickle: only the file that was checked is read, and only arrays."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise Refusal(
            f"watch: {path} is not the file of seglearn 1.2.5; install that version again"
        )
    stream = io.BytesIO(content)
    np.lib.format.read_magic(stream)
    np.lib.format.read_array_header_1_0(stream)
    loaded: dict[str, Any] = _ArraysOnly(stream, encoding="latin1").load().item()
    return loaded
