"""Who judges tries: what a judge says is what the panel or the features say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sensorveil.data.windows import Scaling
from sensorveil.errors import Refusal
from sensorveil.measures.inference import ClassifierSettings, Ensemble
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.judging import by_features, by_panel, worth
from sensorveil.methods.pieces import as_real


@pytest.mark.parametrize("kind", ["signal", "complex"])
def test_the_panel_judges_as_it_reads(kind: str) -> None:
    windows = example_windows(kind)
    codes, classes = windows.codes("activity"), len(windows.classes["activity"])
    panel = Ensemble(2, ClassifierSettings(width=8, epochs=6, batch=16), seed=3)
    panel.fit_codes(windows, codes, classes)
    scaling = Scaling.of(windows)
    centres = torch.eye(classes)
    judge = by_panel(panel, scaling, centres, windows.is_complex)
    signal = as_real(torch.from_numpy(windows.scaled(scaling).signal))
    told = np.random.default_rng(0).integers(classes, size=len(windows))
    with torch.no_grad():
        like, right = judge(signal, centres[torch.from_numpy(told)])
    shares = panel.probabilities(windows)
    np.testing.assert_allclose(like.numpy(), shares[np.arange(len(told)), told], atol=1e-4)
    np.testing.assert_array_equal(right.numpy(), shares.argmax(1) == told)
    assert 0 < right.sum() < len(windows)
    with torch.no_grad():  # few windows are read by all members abreast
        few, _ = judge(signal[:8], centres[torch.from_numpy(told[:8])])
    torch.testing.assert_close(few, like[:8], atol=1e-5, rtol=1e-4)


def test_of_the_right_class_comes_first_then_unlike_what_is_avoided() -> None:
    # Features are (class 0, class 1, the hidden class's probability); the last is not told.
    made = torch.tensor([[0.2, 0.9, 0.1], [0.7, 0.6, 0.8], [0.6, 0.5, 0.3]])
    told = torch.tensor([[1.0, 0.0]]).expand(3, 2)
    judge = by_features(lambda signal: signal[:, :2], torch.eye(2))

    def order(weight: float) -> list[int]:
        readers = [(lambda made: made[:, 2].log(), torch.full((3,), weight))]
        good = worth(judge, lambda piece: readers)
        return good(made, made, {"told": told}).argsort(descending=True).tolist()

    assert order(0.0) == [1, 2, 0], "of those of the class, the one most like it"
    assert order(1.0) == [2, 1, 0], "of those of the class, the one least like what is avoided"


def test_a_panel_that_judges_must_be_there() -> None:
    with pytest.raises(Refusal, match="without a panel"):
        Cloak(panel=0)
    assert Cloak(panel=0, judge="features").settings.judge == "features"
