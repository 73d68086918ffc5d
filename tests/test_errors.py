"""Refusals: always one line."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.errors import Refusal


@settings(deadline=None)
@given(st.text())
def test_a_refusal_is_one_line_whatever_a_file_holds(text: str) -> None:
    message = str(Refusal(text))
    assert len(message.splitlines()) <= 1
    assert message.split() == text.split()
