"""Writes logs of the CSI tool, bit by bit and slowly, so that the reader can be checked."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import numpy as np


def packed_bits(matrix: np.ndarray) -> bytes:
    """(rx, tx, 30) of whole complex numbers as the card packs them."""
    bits: list[int] = []
    for subcarrier in range(30):
        bits += [0, 0, 0]
        for receiver in matrix:
            for pair in receiver:
                for part in (pair[subcarrier].real, pair[subcarrier].imag):
                    bits += [(int(part) >> place) & 1 for place in range(8)]
    bits += [0] * (-len(bits) % 8)
    return bytes(
        sum(bit << place for place, bit in enumerate(bits[i : i + 8]))
        for i in range(0, len(bits), 8)
    )


def record(
    matrix: np.ndarray,
    timestamp: int = 0,
    antennas: tuple[int, ...] = (0, 1, 2),
) -> bytes:
    """One beamforming record; `matrix` is in the card's order, before sorting by antenna."""
    packed = packed_bits(matrix)
    selection = sum(antenna << (2 * place) for place, antenna in enumerate(antennas))
    content = struct.pack("<IHH", timestamp % 2**32, 0, 0)
    content += bytes([matrix.shape[0], matrix.shape[1], 30, 31, 32])
    content += struct.pack("<bBBHH", -92, 40, selection, len(packed), 0x0100) + packed
    return struct.pack(">HB", len(content) + 1, 0xBB) + content


def log(csi: np.ndarray, sample_rate: float = 1000.0, start: int = 0) -> bytes:
    """A log of packets (packets, rx, tx, 30) at an even rate."""
    step = 1e6 / sample_rate
    return b"".join(record(m, start + round(i * step)) for i, m in enumerate(csi))


def random_csi(rng: np.random.Generator, packets: int, rx: int = 3, tx: int = 1) -> np.ndarray:
    """Counts over the whole range of 8 bits."""
    shape = (packets, rx, tx, 30)
    parts = rng.integers(-128, 128, (2, *shape))
    return (parts[0] + 1j * parts[1]).astype(np.complex64)


def widar_folder(folder: Path, repetitions: int = 2) -> None:
    """Widar3.0 as its authors lay it out: nine people, two gestures, two receivers each."""
    content = log(random_csi(np.random.default_rng(0), 30))
    for user, gesture, repetition, receiver in product(
        (5, *range(10, 18)), (1, 9), range(1, repetitions + 1), (1, 2)
    ):
        name = f"user{user}-{gesture}-1-1-{repetition}-r{receiver}.dat"
        place = folder / "20181130" / f"user{user}" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
