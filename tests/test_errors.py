"""Refusals: always one line, and a list of what would have been right."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.errors import Refusal, refuse_unknown


@settings(deadline=None)
@given(st.text())
def test_a_refusal_is_one_line_whatever_a_file_holds(text: str) -> None:
    message = str(Refusal(text))
    assert len(message.splitlines()) <= 1
    assert message.split() == text.split()


def test_unknown_names_list_the_known_in_order() -> None:
    refusal = refuse_unknown("dataset", "wtach", ("watch", "mobiact", "geotec"))
    assert str(refusal) == "dataset 'wtach' is unknown; known: geotec, mobiact, watch"
    assert str(refuse_unknown("strength", "keep", ())).endswith("known: none")
