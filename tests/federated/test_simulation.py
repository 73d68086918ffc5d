"""Flower's Ray engine, with real processes: as in process, over three rounds, with progress."""

from __future__ import annotations

import pytest
import torch

from sensorveil.federated.in_process import federate
from sensorveil.federated.keeping import Keeper
from sensorveil.federated.plan import Plan
from sensorveil.federated.sources import Source
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.run import save_run
from sensorveil.progress import listen


@pytest.mark.slow
def test_three_rounds_on_ray_are_three_in_process(tmp_path):
    from sensorveil.federated.simulation import simulate

    source = Source("simulated", options=(("people", 6),))
    small = {"widths": "24-24-16-16", "latent": 6, "reader_epochs": 1, "reader_width": 4}
    windows = source.windows()
    obfuscator = Blinder(**small).prepare(windows, "activity", "gender")
    save_run(obfuscator, tmp_path / "start")
    plan = Plan(epochs=1, rounds=3, share=0.5, balance=0, deadline=300)
    told = []
    with listen(lambda what, done, total: told.append((what, done, total))):
        there = simulate(
            tmp_path / "start", source, plan, keeper=Keeper(tmp_path / "s", obfuscator, plan, False)
        )
    here = federate(obfuscator, windows, plan)
    torch.testing.assert_close(there.weights(), here.weights(), rtol=1e-4, atol=1e-6)
    federation = {k: v for k, v in there.metrics_["federation"].items()}
    assert federation == here.metrics_["federation"]
    assert [step for step in told if step[0] == "rounds"] == [("rounds", n, 3) for n in range(4)]
