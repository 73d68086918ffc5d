"""Logs of the Linux 802.11n CSI Tool: the channel of each packet that an Intel 5300 card received.

A log is a row of records: two bytes of length (big-endian, the code counted), one byte of code,
the content. Code 0xBB is a beamforming record, with the channel of one packet: 20 bytes of header
and 30 subcarriers; other codes are skipped. Each subcarrier is 3 idle bits and then, for every pair
of antennas (transmitters of the first receiver first), a real and an imaginary part of 8 bits,
signed, lowest bit first. The format is that of the tool by Halperin, Hu, Sheth and Wetherall,
"Tool Release: Gathering 802.11n Traces with Channel State Information" (CCR 2011).

The numbers are the tool's own counts. The card's gain (AGC) changes from packet to packet, so they
are comparable only after `unit_power`, which divides each packet by its own root mean power.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sensorveil.errors import Refusal

SUBCARRIERS = 30
"""The tool reports 30 groups of subcarriers, on 20 and on 40 MHz channels."""

CHANNELS = tuple(f"rx{rx}/sc{sc:02d}" for rx in (1, 2, 3) for sc in range(1, SUBCARRIERS + 1))
"""Names for three receive antennas and one transmit antenna, as in all datasets here."""

_BEAMFORMING = 0xBB
_LONGEST = 4096  # the tool's own buffer: no record is longer
_HEADER = np.dtype(
    [
        ("timestamp", "<u4"),
        ("count", "<u2"),
        ("reserved", "<u2"),
        ("rx", "u1"),
        ("tx", "u1"),
        ("rssi", "u1", (3,)),
        ("noise", "i1"),
        ("agc", "u1"),
        ("antennas", "u1"),
        ("length", "<u2"),
        ("rate", "<u2"),
    ]
)


@dataclass(frozen=True, eq=False)
class CsiLog:
    """The packets of one log.

    Parameters
    ----------
    csi : array of shape (packets, rx, tx, 30)
        The tool's counts, receivers in the order of their antennas.
    timestamp : array of shape (packets,)
        Microseconds from an unknown start; begins again after 2**32.
    """

    csi: np.ndarray
    timestamp: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """Time since the first packet; the counter may pass its end on the way."""
        steps = np.diff(self.timestamp).astype(np.uint32).view(np.int32)
        return np.concatenate([[0.0], np.cumsum(steps, dtype=np.int64) / 1e6])


def read_log(source: Path | bytes, name: str | None = None) -> CsiLog:
    """Reads a log.

    A log that ends within its last record is ordinary, since the tool is stopped by a key: the
    whole records are read. A log without any whole record, or with impossible lengths, is refused.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content.
    name : str, optional
        The name of the file in refusals; default: its path.
    """
    name = name or str(source)
    try:
        content = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise Refusal(f"{name} cannot be read: {error.strerror}") from None
    starts = _record_starts(content, name)
    if not len(starts):
        raise Refusal(f"{name} holds no whole packet with CSI; leave it out or copy it again")
    data = np.frombuffer(content, np.uint8)
    header = data[starts[:, None] + np.arange(_HEADER.itemsize)].view(_HEADER)[:, 0]
    kept = _commonest_antennas(header)
    header, starts = header[kept], starts[kept]
    rx, tx = int(header["rx"][0]), int(header["tx"][0])
    at = starts[:, None] + _HEADER.itemsize + np.arange(_packed_size(rx, tx))
    return CsiLog(
        csi=_in_antenna_order(_unpacked(data[at], rx, tx), header["antennas"]),
        timestamp=header["timestamp"].copy(),
    )


def channels_first(log: CsiLog, name: str) -> np.ndarray:
    """The log as a signal (90, packets) in the order of `CHANNELS`; other antennas are refused."""
    packets, rx, tx, _ = log.csi.shape
    if (rx, tx) != (3, 1):
        raise Refusal(
            f"{name} has {rx} receive and {tx} transmit antennas; 3 and 1 are needed, leave it out"
        )
    return np.ascontiguousarray(log.csi.reshape(packets, -1).T)


def unit_power(signal: np.ndarray) -> np.ndarray:
    """Each packet of a signal (channels, packets) divided by its root mean power.

    This removes the card's gain, and with it the received strength; the shape over antennas and
    subcarriers and all phases stay. A packet without any power stays zero.

    Examples
    --------
    >>> unit_power(np.array([[3 + 4j, 0], [5, 0]]))
    array([[0.6+0.8j, 0. +0.j ],
           [1. +0.j , 0. +0.j ]])
    """
    power = np.mean(signal.real**2 + signal.imag**2, axis=0)
    return signal / np.sqrt(np.where(power > 0, power, 1.0)).astype(signal.real.dtype)


def _record_starts(content: bytes, name: str) -> np.ndarray:
    """Where the content of each whole beamforming record begins."""
    starts = []
    at = 0
    while at + 3 <= len(content):
        length = int.from_bytes(content[at : at + 2], "big")
        if not 1 <= length <= _LONGEST:
            raise Refusal(
                f"{name} is no log of the CSI tool, or damaged: a record of {length} bytes at"
                f" byte {at}; copy it again or leave it out"
            )
        if at + 2 + length > len(content):
            break
        if content[at + 2] == _BEAMFORMING:
            _check_record(content, at, length, name)
            starts.append(at + 3)
        at += 2 + length
    return np.array(starts, dtype=np.int64)


def _check_record(content: bytes, at: int, length: int, name: str) -> None:
    """Refuses a beamforming record whose three statements of its size disagree."""
    size = length - 1 - _HEADER.itemsize
    if size >= 0:
        header = np.frombuffer(content, _HEADER, count=1, offset=at + 3)[0]
        rx, tx = int(header["rx"]), int(header["tx"])
        if 1 <= rx <= 3 and 1 <= tx <= 3 and size == header["length"] == _packed_size(rx, tx):
            return
    raise Refusal(
        f"{name} is damaged: the record at byte {at} does not have the size that it states;"
        " copy it again or leave it out"
    )


def _packed_size(rx: int, tx: int) -> int:
    """Bytes of 30 subcarriers."""
    return (SUBCARRIERS * (3 + 16 * rx * tx) + 7) // 8


def _commonest_antennas(header: np.ndarray) -> np.ndarray:
    """Marks the packets with the commonest number of antennas: other stations may be heard too."""
    kinds = header["rx"].astype(int) * 4 + header["tx"]
    return np.asarray(kinds == np.bincount(kinds).argmax())


def _unpacked(packed: np.ndarray, rx: int, tx: int) -> np.ndarray:
    """The bits of all packets at once, as complex numbers (packets, rx, tx, 30)."""
    each = 3 + 16 * rx * tx
    bits = np.unpackbits(packed, axis=1, count=SUBCARRIERS * each, bitorder="little")
    bits = bits.reshape(len(packed), SUBCARRIERS, each)[:, :, 3:]
    parts = np.packbits(bits, axis=2, bitorder="little").view(np.int8).astype(np.float32)
    csi = np.ascontiguousarray(parts).view(np.complex64)
    return np.moveaxis(csi.reshape(len(packed), SUBCARRIERS, rx, tx), 1, 3)


def _in_antenna_order(csi: np.ndarray, antennas: np.ndarray) -> np.ndarray:
    """Receivers sorted by antenna: two bits a receiver tell on which antenna it listened.

    Where those bits name one antenna twice the card's order is all that is known, and it stays.
    """
    rx = csi.shape[1]
    order = (antennas[:, None] >> (2 * np.arange(rx, dtype=np.uint8))) & 3
    known = (np.sort(order, axis=1) == np.arange(rx)).all(axis=1)
    order[~known] = np.arange(rx)
    sorted_csi = np.empty(csi.shape, csi.dtype)
    sorted_csi[np.arange(len(csi))[:, None], order] = csi
    return sorted_csi
