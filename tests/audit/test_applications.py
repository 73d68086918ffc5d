"""Applications: each design learns what is there, on signals, complex windows and images."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import sensorveil
from sensorveil.audit import applications
from sensorveil.audit.applications import (
    ApplicationModel,
    application_class,
    list_applications,
    register_application,
)
from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal

DESIGNS = list_applications()


def accuracy(name: str, train: Windows, test: Windows, attribute: str) -> float:
    model = application_class(name)(quick=True)
    model.fit(train, train.codes(attribute), len(train.classes[attribute]))
    return float((model.predict(test) == test.codes(attribute)).mean())


@pytest.mark.parametrize("name", DESIGNS)
def test_each_design_predicts_the_activity_of_new_people(name: str) -> None:
    split = sensorveil.load("simulated", people=16, recordings=1, windows=12)
    assert accuracy(name, split.train, split.test, "activity") > 0.85


@pytest.mark.parametrize("name", DESIGNS)
def test_few_windows_are_enough_for_what_is_plain(name: str) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 2
    windows = Windows.from_signal(rng.normal(size=(60, 2, 32)) + codes[:, None, None], {"a": codes})
    train, test = windows.select(slice(0, 40)), windows.select(slice(40, 60))
    assert accuracy(name, train, test, "a") > 0.9


@pytest.mark.parametrize("name", DESIGNS)
def test_labels_that_say_nothing_are_not_predicted(name: str) -> None:
    rng = np.random.default_rng(0)
    train, test = (
        Windows.from_signal(rng.normal(size=(400, 2, 20)), {"gender": rng.integers(2, size=400)})
        for _ in range(2)
    )
    assert abs(accuracy(name, train, test, "gender") - 0.5) < 0.12


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("shape", [(3, 40), (2, 12, 12), (1, 5)], ids=str)
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_shapes_and_a_class_that_does_not_occur(
    name: str, shape: tuple[int, ...], is_complex: bool
) -> None:
    if is_complex and len(shape) == 3:
        return
    rng = np.random.default_rng(0)
    codes = rng.choice([0, 2, 3], 120)
    signal = rng.normal(size=(120, *shape)) * (1 + codes.reshape(-1, *[1] * len(shape)))
    if is_complex:
        signal = signal * np.exp(2j * np.pi * rng.random(signal.shape))
    windows = Windows.from_signal(signal.astype("c8" if is_complex else "f4"), {"activity": codes})
    predicted = application_class(name)(quick=True).fit(windows, codes, 5).predict(windows)
    assert (predicted == codes).mean() > 0.6
    assert set(predicted) <= {0, 2, 3}


def test_no_method_uses_these_designs() -> None:
    """What methods import: neither the applications nor the features of two of them."""
    found = set()
    for path in Path(sensorveil.__file__).parent.glob("methods/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert "sensorveil.classifiers.Classifier" in found
    assert not [name for name in found if "audit.applications" in name or "audit.features" in name]
    assert not [name for name in found if "sklearn.ensemble" in name]


def test_names_are_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "_APPLICATIONS", dict(applications._APPLICATIONS))

    class Other(ApplicationModel):
        def fit(self, windows, codes, num_classes):
            return self

        def predict(self, windows):
            return np.zeros(len(windows), int)

    assert register_application("other")(Other) is application_class("other")
    assert list_applications() == (*DESIGNS, "other")
    with pytest.raises(Refusal, match="'other' already"):
        register_application("other")(type("Another", (Other,), {}))
    with pytest.raises(Refusal, match="'boosted tree' is unknown"):
        application_class("boosted tree")
