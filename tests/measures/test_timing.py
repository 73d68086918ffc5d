"""The median time of some calls."""

from __future__ import annotations

import pytest

from sensorveil.measures import timing


@pytest.mark.parametrize(("warm", "median"), [(True, 2.0), (False, 4.0)])
def test_the_call_that_warms_up_does_not_count(monkeypatch, warm, median):
    clock, lasts = [0.0], iter([9.0, 1.0, 4.0, 2.0])

    def work() -> None:
        clock[0] += next(lasts)

    monkeypatch.setattr(timing, "perf_counter", lambda: clock[0])
    assert timing.median_seconds(work, repeats=3, warm=warm) == median
