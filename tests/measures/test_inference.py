"""Inference models: they learn what is there, only from training windows, and come back whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import (
    Classifier,
    ClassifierSettings,
    Ensemble,
    fit_classifiers,
    input_shape,
    labelled_windows,
)
from sensorveil.methods.base import modality
from sensorveil.methods.conformance import example_windows

TINY = ClassifierSettings(width=8, epochs=6, batch=16, rate=4e-3)
KINDS = ("signal", "complex", "image")


def toy(kind: str = "signal", seed: int = 0) -> Windows:
    """Two activities that differ in their rhythm; images and CSI too."""
    return example_windows(kind, seed)


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest) -> tuple[Classifier, Windows]:
    windows = toy(request.param)
    return Classifier(TINY, seed=1).fit(windows, "activity"), windows


def test_it_learns_what_is_there(trained: tuple[Classifier, Windows]) -> None:
    model, windows = trained
    fresh = toy(modality(windows), seed=9)
    read = model.predict(fresh)
    assert (read == fresh.labels["activity"]).mean() > 0.9
    assert model.losses_[-1] < model.losses_[0]


def test_probabilities_add_up(trained: tuple[Classifier, Windows]) -> None:
    model, windows = trained
    logs = model.log_probabilities(windows)
    assert logs.shape == (len(windows), 2)
    np.testing.assert_allclose(np.exp(logs).sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(windows), logs.argmax(1))


def test_few_windows_are_read_as_many_are(trained: tuple[Classifier, Windows]) -> None:
    """A stream's windows one by one, which are copied, and all at once, on the device."""
    model, windows = trained
    many = windows.select(np.arange(3000) % len(windows))
    whole = model.log_probabilities(many)
    for few in ([7], [0, 5, 2999]):
        np.testing.assert_allclose(
            model.log_probabilities(many.select(np.array(few))), whole[few], atol=1e-5
        )


def test_scores_in_other_units_are_those_of_the_same_windows(
    trained: tuple[Classifier, Windows],
) -> None:
    model, windows = trained
    other = Scaling(model.scaling_.mean + 3, 2 * model.scaling_.deviation)
    signal = torch.from_numpy(windows.scaled(other).signal).requires_grad_()
    scores = model.scores_in(other)(signal)
    np.testing.assert_allclose(
        scores.log_softmax(1).detach().numpy(), model.log_probabilities(windows), atol=1e-3
    )
    with torch.no_grad():
        torch.testing.assert_close(model.readings_in(other)(signal), scores.detach())
    scores.sum().backward()
    assert signal.grad is not None
    assert not model.scores_in(other)(signal.detach()).requires_grad  # the model does not learn
    assert all(weight.requires_grad for weight in model.net_.parameters())  # and stays as it was


def test_a_tuned_model_follows_other_windows_and_the_first_one_stays() -> None:
    """What was one class looks like the other now: only who goes on learning can tell."""
    windows = toy()
    model = Classifier(TINY, seed=1).fit(windows, "activity")
    before = model.log_probabilities(windows)
    swapped = replace(windows, labels={"activity": 1 - windows.labels["activity"]})
    tuned = model.tuned(swapped, "activity", epochs=12)
    assert (tuned.predict(windows) == swapped.labels["activity"]).mean() > 0.9
    assert len(tuned.losses_) == 12
    np.testing.assert_array_equal(model.log_probabilities(windows), before)


def test_a_panel_reads_the_mean_of_its_members() -> None:
    windows = example_windows()
    panel = Ensemble(3, ClassifierSettings(width=4, epochs=1, batch=16))
    panel.fit_codes(windows, windows.codes("activity"), 2)
    each = [np.exp(member.log_probabilities(windows)) for member in panel.members]
    np.testing.assert_allclose(panel.probabilities(windows), np.mean(each, axis=0), atol=1e-6)
    np.testing.assert_array_equal(panel.predict(windows), np.mean(each, axis=0).argmax(1))
    assert (each[0] != each[1]).any()


def test_several_models_learn_as_each_does_alone() -> None:
    windows = toy()
    asked = [("activity", 0), ("gender", 0), ("gender", 1)]
    models = [Classifier(TINY, seed) for _, seed in asked]
    fit_classifiers(models, [labelled_windows(windows, name) for name, _ in asked])
    for model, (name, seed) in zip(models, asked, strict=True):
        alone = Classifier(TINY, seed).fit(windows, name)
        assert model.losses_ == alone.losses_
        np.testing.assert_array_equal(
            model.log_probabilities(windows), alone.log_probabilities(windows)
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this needs a GPU")
def test_on_a_gpu_several_models_learn_at_once() -> None:
    windows, fresh = toy(), toy(seed=9)
    models = [Classifier(TINY, seed, "cuda") for seed in range(4)]
    fit_classifiers(models, [labelled_windows(windows, "activity")] * len(models))
    for model in models:
        assert (model.predict(fresh) == fresh.labels["activity"]).mean() > 0.9
    assert len({model.losses_[0] for model in models}) == len(models)


def test_it_comes_back_from_its_state(trained: tuple[Classifier, Windows]) -> None:
    model, windows = trained
    state = {name: array.copy() for name, array in model.state().items()}
    again = Classifier(TINY, seed=99).restore(state, input_shape(windows), 2)
    np.testing.assert_array_equal(
        again.log_probabilities(windows), model.log_probabilities(windows)
    )


def test_it_standardises_by_training_alone(trained: tuple[Classifier, Windows]) -> None:
    model, windows = trained
    signal = windows.signal.astype(np.complex128 if windows.is_complex else np.float64)
    axes = (0, *range(2, signal.ndim))
    np.testing.assert_allclose(model.scaling_.mean.reshape(-1), signal.mean(axes), rtol=1e-4)
    np.testing.assert_allclose(model.scaling_.deviation.reshape(-1), signal.std(axes), rtol=1e-4)
    before = model.scaling_.mean.copy()
    other = windows.replaced(windows.signal * 3)
    whole = model.log_probabilities(other)
    np.testing.assert_array_equal(model.scaling_.mean, before)
    alone = model.log_probabilities(other.select([5]))
    np.testing.assert_allclose(alone[0], whole[5], rtol=1e-4, atol=1e-5)


def test_the_seed_decides() -> None:
    windows = toy()
    quick = replace(TINY, epochs=1)
    first, second, other = (
        Classifier(quick, seed=seed).fit(windows, "activity").state() for seed in (4, 4, 5)
    )
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert any((first[name] != other[name]).any() for name in first)


def test_units_do_not_matter() -> None:
    windows = toy()
    other = windows.replaced(windows.signal * np.array([[1000.0], [0.001]]) - 5)
    quick = replace(TINY, epochs=2)
    read = [Classifier(quick).fit(w, "activity").predict(w) for w in (windows, other)]
    assert (read[0] == read[1]).mean() > 0.95


def test_unknown_classes_are_not_learnt_from() -> None:
    windows = toy()
    codes = windows.labels["activity"].copy()
    codes[::3] = UNKNOWN
    holes = replace(windows, labels={**windows.labels, "activity": codes})
    quick = replace(TINY, epochs=1)
    with_holes = Classifier(quick).fit(holes, "activity").state()
    without = Classifier(quick).fit(holes.select(codes != UNKNOWN), "activity").state()
    for name in without:
        np.testing.assert_array_equal(with_holes[name], without[name])


def test_a_class_that_does_not_occur_keeps_its_place() -> None:
    windows = toy()
    wide = replace(windows, classes={**windows.classes, "activity": ("a", "b", "never")})
    model = Classifier(replace(TINY, epochs=4)).fit(wide, "activity")
    assert model.log_probabilities(wide).shape[1] == 3
    assert set(model.predict(wide)) <= {0, 1}


def test_refusals() -> None:
    windows = toy()
    one = replace(windows, labels={**windows.labels, "gender": np.zeros(len(windows), int)})
    with pytest.raises(Refusal, match="'gender' has one class only"):
        Classifier(TINY).fit(one, "gender")
    with pytest.raises(Refusal, match="attribute 'age' is unknown; known: activity, gender"):
        Classifier(TINY).fit(windows, "age")


def test_shapes_that_the_network_sees() -> None:
    assert input_shape(toy("signal")) == (2, 32)
    assert input_shape(toy("complex")) == (6, 32)
    assert input_shape(toy("image")) == (2, 16, 16)


def test_quick_is_smaller() -> None:
    quick, full = ClassifierSettings.quick(), ClassifierSettings()
    assert quick.width < full.width
    assert quick.epochs < full.epochs


def test_dense_models_learn_and_come_back() -> None:
    windows = toy()
    settings = ClassifierSettings(epochs=40, batch=16, rate=2e-3, dense=True)
    model = Classifier(settings, seed=1).fit(windows, "activity")
    right = (model.predict(windows) == windows.codes("activity")).mean()
    assert right > 0.9
    again = Classifier(settings).restore(model.state(), input_shape(windows), 2)
    np.testing.assert_array_equal(again.predict(windows), model.predict(windows))
