"""Progress: whoever listens hears every step, and nobody else does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.progress import listen, track

Heard = list[tuple[str, int, int]]


def ear(heard: Heard):
    return lambda *told: heard.append(told)


@settings(deadline=None)
@given(st.lists(st.integers(), max_size=20))
def test_items_pass_and_steps_are_counted(items: list[int]) -> None:
    heard: Heard = []
    assert list(track([1, 2], "before")) == [1, 2]
    with listen(ear(heard)):
        passed = list(track(items, "work"))
    assert passed == items
    assert heard == [("work", done, len(items)) for done in range(len(items) + 1)]


def test_an_error_ends_the_listening() -> None:
    heard: Heard = []
    with pytest.raises(ZeroDivisionError), listen(ear(heard)):
        sum(1 / item for item in track([0, 1], "work"))
    assert heard == [("work", 0, 2)]
    list(track([1], "later"))
    assert len(heard) == 1
