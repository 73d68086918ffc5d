"""Class diffusion: a window of the predicted class, and nothing else of the wearer's window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.methods.class_diffusion import ClassDiffusion
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import load_run, save_run

TINY: dict[str, Any] = {
    "epochs": 40,
    "autoencoder_epochs": 2,
    "latent_size": 8,
    "autoencoder_widths": (4, 4),
    "width": 32,
    "blocks": 1,
    "num_candidates": 3,
    "ensemble_size": 2,
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def tiny() -> ClassDiffusion:
    return ClassDiffusion(**TINY).fit(example_windows(), "activity", "gender")


def test_the_predicted_class_comes_out(tiny: ClassDiffusion, tmp_path: Path) -> None:
    windows = example_windows(seed=5)
    hidden = tiny.obfuscate(windows, seed=1)
    predicted = tiny.ensemble_.predict(tiny._standard(hidden))
    assert (predicted == windows.labels["activity"]).mean() > 0.85
    again = load_run(save_run(tiny, tmp_path / "run"))
    np.testing.assert_array_equal(again.obfuscate(windows, seed=1).signal, hidden.signal)


def test_the_output_depends_on_the_predicted_class_alone(tiny: ClassDiffusion) -> None:
    """Other windows of the same predicted class give the same output from the same noise."""
    windows, others = example_windows(), example_windows(seed=9)
    one, other = (tiny.condition(some) for some in (windows, others))
    assert (one.sum(1) == 1).all()
    same = (one == other).all(1)
    assert same.mean() > 0.5
    first, second = (tiny.obfuscate(some, seed=4).signal for some in (windows, others))
    np.testing.assert_array_equal(first[same], second[same])


def test_the_most_likely_candidate_of_the_class_is_given_out(tiny: ClassDiffusion) -> None:
    """Found again from each candidate's noise alone."""
    windows = tiny._standard(example_windows(seed=5))
    inputs = tiny._inputs(windows, {}, np.random.default_rng(2))
    single = tiny.with_settings(num_candidates=1)
    each = torch.stack(
        [single._sample({**inputs, "noise": inputs["noise"][:, i : i + 1]}) for i in range(3)]
    )
    with torch.no_grad():
        shares = torch.stack([tiny.ensemble_.scores(one).softmax(2).mean(0) for one in each])
    code = inputs["code"]
    score = shares[:, torch.arange(96), code] + (shares.argmax(2) == code)
    best = score.argmax(0)
    assert len(best.unique()) == 3
    found = tiny._sample(inputs)
    torch.testing.assert_close(found, each[best, torch.arange(96)], atol=1e-3, rtol=1e-3)


def test_combinations_that_never_occur_are_never_made() -> None:
    windows = example_windows()
    both = windows.labels["activity"] * (1 - windows.labels["weight"])
    activity = windows.labels["activity"].copy()
    activity[:5] = UNKNOWN
    labels = {**windows.labels, "weight": both, "activity": activity}
    method = ClassDiffusion(**{**TINY, "epochs": 1, "ensemble_size": 1})
    method.fit(replace(windows, labels=labels), ["activity", "weight"], "gender")
    assert method.joint_classes_.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert method.condition(windows).shape == (96, 3)


def test_hidden_attributes_have_no_strength_and_none_can_be_added(tiny: ClassDiffusion) -> None:
    windows = example_windows()
    assert tiny.strength_names() == ("guidance_scale",)
    with pytest.raises(Refusal, match="unknown"):
        tiny.obfuscate(windows, {"gender": 1.0})
    with pytest.raises(Refusal, match="trained anew"):
        tiny.add_hidden(windows, "weight")


@pytest.mark.parametrize(
    ("name", "value"), [("num_candidates", 0), ("sampling_steps", 2000), ("autoencoder_widths", ())]
)
def test_impossible_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(Refusal, match=name):
        ClassDiffusion(**{name: value})
