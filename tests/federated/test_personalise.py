"""Personalising: few windows of one person, and a loss that falls on the others of that person."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.federated.client import people_of
from sensorveil.federated.personalise import adaptation_set, personalise
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.conformance import example_windows


def test_the_set_is_smaller_than_its_share_and_of_one_person(windows):
    one = people_of(windows)[1]
    few = adaptation_set(one, 0.5, seed=3)
    assert len(few) == 11  # of 24
    assert len(np.unique(few.offset)) == 11
    assert set(few.subject) == {1}
    with pytest.raises(Refusal, match="several people"):
        adaptation_set(windows, 0.5, seed=0)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 1.0])
def test_too_few_windows_are_refused_with_the_number_that_is_enough(share):
    def some(count):
        return Windows.from_signal(np.zeros((count, 1, 4)))

    with pytest.raises(Refusal, match="2 windows are too few") as refused:
        adaptation_set(some(2), share, seed=0)
    assert "--share" not in str(refused.value)  # no share of two windows is enough
    (enough,) = re.findall(r"there must be (\d+)", str(refused.value))
    assert len(adaptation_set(some(int(enough)), share, seed=0)) == 2
    if int(enough) > 3:
        with pytest.raises(Refusal, match=r"or take a larger share \(--share\)"):
            adaptation_set(some(int(enough) - 1), share, seed=0)


def test_windows_of_other_classes_are_none_to_adapt_to(start, windows):
    few = people_of(windows)[2].select(slice(0, 6))
    named = dict(few.classes, activity=("flying", *few.classes["activity"][1:]))
    codes = dict(few.labels, activity=np.array([0, 0, 0, 0, 0, 1]))
    with pytest.raises(Refusal, match="1 of 6 windows have classes of activity, gender that"):
        personalise(start, replace(few, classes=named, labels=codes))


def test_a_strange_person_is_rebuilt_better_afterwards():
    """Trained on people of one loudness, adapted to somebody twice as loud."""
    windows = example_windows()
    run = Blinder("paper", seed=1, **{"training.epochs": 60, "training.batch_size": 48}, width=4)
    run.fit(windows, "activity", "gender")
    before = run.weights()
    mean = windows.signal.mean((0, 2), keepdims=True)
    louder = people_of(windows.replaced((windows.signal - mean) * 2 + mean))[3]
    few, others = louder.select(slice(0, 8)), louder.select(slice(8, None))
    adapted = personalise(run, few)
    scale = windows.signal.std((0, 2), keepdims=True)

    def error(one):
        gap = (one.obfuscate(others, seed=1).signal - others.signal) / scale
        return float((gap**2).mean())

    assert error(adapted) < 0.8 * error(run)
    assert torch.equal(run.weights(), before)
    assert adapted.metrics_["personalised"] == {"windows": 8, "steps": 80, "learning_rate": 1e-4}


def test_the_seed_decides(start, windows):
    few = people_of(windows)[2].select(slice(0, 6))
    first, again, other = (personalise(start, few, 3, seed=seed).weights() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
