"""The log reader, against a writer that packs one bit after the other."""

from __future__ import annotations

import intel5300_writer as writer
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.data.intel5300 import channels_first, read_log
from sensorveil.errors import Refusal


@settings(max_examples=25, deadline=None)
@given(
    rx=st.integers(1, 3), tx=st.integers(1, 3), packets=st.integers(1, 4), seed=st.integers(0, 99)
)
def test_every_shape_comes_back_bit_for_bit(rx: int, tx: int, packets: int, seed: int) -> None:
    csi = writer.random_csi(np.random.default_rng(seed), packets, rx, tx)
    log = read_log(b"".join(writer.record(m, antennas=tuple(range(rx))) for m in csi), "a.dat")
    np.testing.assert_array_equal(log.csi, csi)
    assert log.csi.dtype == np.complex64


def test_receivers_are_sorted_by_their_antenna() -> None:
    csi = writer.random_csi(np.random.default_rng(0), 1)
    # The first receiver listened on the third antenna, the second on the first, and so on.
    log = read_log(writer.record(csi[0], antennas=(2, 0, 1)), "a.dat")
    np.testing.assert_array_equal(log.csi[0], csi[0][[1, 2, 0]])
    twice = read_log(writer.record(csi[0], antennas=(1, 1, 0)), "a.dat")
    np.testing.assert_array_equal(twice.csi[0], csi[0])


def test_time_over_the_end_of_the_counter() -> None:
    csi = writer.random_csi(np.random.default_rng(1), 3)
    log = read_log(writer.log(csi, start=2**32 - 1000), "a.dat")
    np.testing.assert_allclose(log.seconds, [0, 0.001, 0.002])


def test_a_cut_end_is_read_up_to_it_and_other_records_are_passed_over() -> None:
    csi = writer.random_csi(np.random.default_rng(2), 3)
    one = writer.record(csi[0])
    other = b"\x00\x05\xc1abcd"
    content = other + one + other + writer.record(csi[1]) + writer.record(csi[2])
    for missing in (1, 100, len(one) - 3, len(one) - 1):
        log = read_log(content[:-missing], "a.dat")
        np.testing.assert_array_equal(log.csi, csi[:2])


def test_packets_with_other_antennas_are_left_out() -> None:
    rng = np.random.default_rng(3)
    many, one = writer.random_csi(rng, 3), writer.random_csi(rng, 1, rx=2, tx=2)
    content = writer.log(many[:2]) + writer.record(one[0]) + writer.log(many[2:])
    log = read_log(content, "a.dat")
    np.testing.assert_array_equal(log.csi, many)


def _with(content: bytes, at: int, value: int) -> bytes:
    return content[:at] + bytes([value]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: b"", "no whole packet"),
        (lambda c: b"\x00\x05\xc1abcd", "no whole packet"),
        (lambda c: b"time,csi\n1,2\n", "no log of the CSI tool"),
        (lambda c: c + b"\x00\x00\xbb", "a record of 0 bytes"),
        (lambda c: _with(c, 11, 2), "does not have the size"),  # two receivers in a record of three
        (lambda c: _with(c, 19, 1), "does not have the size"),  # the length within the header
        (lambda c: b"\x00\x02\xbbx" + c, "does not have the size"),
    ],
)
def test_what_is_no_log_is_refused(change, reason: str) -> None:
    whole = writer.log(writer.random_csi(np.random.default_rng(4), 2))
    with pytest.raises(Refusal, match=reason) as refusal:
        read_log(change(whole), "bad.dat")
    assert "bad.dat" in str(refusal.value)


def test_other_antennas_are_refused() -> None:
    two = read_log(writer.record(writer.random_csi(np.random.default_rng(6), 1, tx=2)[0]), "b.dat")
    with pytest.raises(Refusal, match="3 receive and 2 transmit"):
        channels_first(two, "b.dat")
