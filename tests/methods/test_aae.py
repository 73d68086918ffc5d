"""AAE: its losses against plain formulas, what classifiers of raw windows still predict, both forms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods import aae
from sensorveil.methods.aae import (
    AAE,
    AnonymizingAutoencoder,
    not_the_one_loss,
    uniform_loss,
    validation_windows,
)
from sensorveil.methods.conformance import example_windows
from sensorveil.train import seeded

SMALL = {"width": 6, "regulariser_width": 6, "regulariser_epochs": 2, "epochs": 3}
SMALL |= {"warmup_epochs": 2}
IDENTITY = {"loss": "not-the-one", "latent_regulariser": True}
both_forms = pytest.mark.parametrize("form", [{}, IDENTITY], ids=["gender", "identity"])


def fitted(windows, hide="gender", **settings):
    return AAE(**{**SMALL, **settings}).fit(windows, keep="activity", hide=hide)


# The network and the losses.


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 7), st.integers(1, 70))
def test_any_channels_and_any_length(channels, length):
    network = AnonymizingAutoencoder(channels, width=4).eval()
    signal = torch.randn(3, channels, length)
    assert network.encode(signal).shape == (3, channels, -(-length // 4))
    assert network(signal).shape == signal.shape


def test_an_odd_length_is_padded_and_cut():
    with seeded(0):
        network = AnonymizingAutoencoder(2, width=6).eval()
        signal = torch.randn(4, 2, 30)
    longer = torch.cat([signal, signal[..., -1:], signal[..., -1:]], dim=-1)
    torch.testing.assert_close(network(signal), network(longer)[..., :30])


def test_all_weights_learn():
    """A weight without a gradient would be dead, or cancelled by a batch norm."""
    with seeded(0):
        network = AnonymizingAutoencoder(2, width=6)
        network(torch.randn(8, 2, 32)).square().mean().backward()
    largest = {name: float(weight.grad.abs().max()) for name, weight in network.named_parameters()}
    assert min(largest.values()) > 1e-5, largest


def probabilities(scores):
    powers = np.exp(scores.double().numpy())
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 24])
def test_uniform_loss_by_hand(classes):
    scores = torch.randn(9, classes, generator=torch.Generator().manual_seed(1))
    wanted = -(np.log(probabilities(scores)) / classes).sum(1).mean()
    assert float(uniform_loss(scores)) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("classes", [2, 24])
def test_not_the_one_loss_by_hand(classes):
    generator = torch.Generator().manual_seed(3)
    scores = 2 * torch.randn(9, classes, generator=generator)
    labels = torch.randint(classes, (9,), generator=generator)
    labels[4] = UNKNOWN
    total = 0.0
    for row, label in zip(probabilities(scores), labels.tolist(), strict=True):
        total -= np.log(1 - row.max())
        total -= 0.0 if label < 0 else np.log(1 - row[label])
    assert float(not_the_one_loss(scores, labels)) == pytest.approx(total / 9, rel=1e-5)


def test_a_very_sure_classifier_has_a_gradient():
    scores = torch.tensor([[300.0, -300.0, 0.0]], requires_grad=True)
    loss = not_the_one_loss(scores, torch.tensor([0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(600, rel=1e-4)
    np.testing.assert_allclose(scores.grad, [[2.0, 0.0, -2.0]], atol=1e-5)


# What it keeps and hides.


def two_tones(seed, count=320):
    """A slow tone whose pace is the activity, and a fast one whose loudness is the gender."""
    rng = np.random.default_rng(seed)
    activity, gender = rng.integers(2, size=(2, count))
    time, phase = np.arange(48), rng.uniform(0, 2 * np.pi, (2, count, 1))
    slow = np.sin(time * (0.25 + 0.25 * activity[:, None]) + phase[0])
    fast = np.sin(time * 1.6 + phase[1]) * (0.2 + 0.6 * gender[:, None])
    noise = rng.normal(size=(count, 1, 48)) * 0.1
    labels = {"activity": activity, "gender": gender}
    return Windows.from_signal((slow + fast)[:, None] + noise, labels, sample_rate=50.0)


@pytest.fixture(scope="module")
def tones():
    train, test = two_tones(0), two_tones(1)
    quick = ClassifierSettings(width=12, epochs=8, batch_size=32, learning_rate=4e-3)
    models = {name: Classifier(quick, seed=7).fit(train, name) for name in ("activity", "gender")}
    return train, test, models


def accuracies(models, windows):
    return {
        name: float((model.predict(windows) == windows.codes(name)).mean())
        for name, model in models.items()
    }


@pytest.mark.slow
@both_forms
def test_raw_classifiers_find_the_activity_and_not_the_gender(tones, form):
    train, test, models = tones
    assert min(accuracies(models, test).values()) > 0.95
    obfuscator = AAE(seed=1, width=12, regulariser_width=12, batch_size=32, **form)
    output = obfuscator.fit(train, "activity", "gender").obfuscate(test)
    found = accuracies(models, output)
    assert found["activity"] > 0.9
    assert abs(found["gender"] - 0.5) < 0.15


@pytest.mark.slow
def test_without_classifiers_it_copies(tones):
    train, test, models = tones
    obfuscator = AAE(width=12, regulariser_epochs=1, batch_size=32, loss_weights=(1.0, 0.0, 0.0))
    output = obfuscator.fit(train, "activity", "gender").obfuscate(test)
    assert (output.signal - test.signal).var() < 0.1 * test.signal.var()
    assert min(accuracies(models, output).values()) > 0.9


@pytest.mark.parametrize("length", [1, 30])
@both_forms
def test_odd_and_short_windows(length, form):
    windows = example_windows()
    short = Windows.from_signal(windows.signal[..., :length], windows.labels)
    assert fitted(short, **form).obfuscate(short).shape == (2, length)


def test_the_output_is_made_from_the_condition_alone():
    windows = example_windows()
    obfuscator = fitted(windows)
    code = obfuscator.condition(windows)
    assert code.shape == (96, 2 * 32 // 4)
    with torch.no_grad():
        decoded = obfuscator.network_.decode(torch.from_numpy(code).view(96, 2, 8), 32).numpy()
    again = obfuscator.scaling_.undo(decoded)
    np.testing.assert_allclose(obfuscator.obfuscate(windows).signal, again, rtol=1e-5)


# Training.


def test_rounds_and_classifiers_are_counted():
    metrics = fitted(example_windows(), ["gender", "weight"], rounds=2, **IDENTITY).metrics_
    assert len(metrics["warmup_loss"]) == 2
    for turn in (1, 2):  # one classifier of what is kept, two of what is hidden, two of the code
        assert len(metrics[f"regulariser_loss_{turn}"]) == 5
        assert len(metrics[f"validation_loss_{turn}"]) == 3


def test_classifiers_learn_from_raw_windows_and_then_from_the_output(monkeypatch):
    windows = replace(example_windows(), recording=np.zeros(96, int))  # all windows are trained on
    shown, really_train = [], aae.train_network

    def look(stage, network, loss, *rest, **options):
        if "classifier" not in stage:
            return really_train(stage, network, loss, *rest, **options)
        handle = network.register_forward_pre_hook(lambda _, given: shown.append(given[0].numpy()))
        loss(torch.arange(96))
        handle.remove()
        network.eval()
        return [0.0]

    monkeypatch.setattr(aae, "train_network", look)
    first = fitted(windows, rounds=1).obfuscate(windows).signal
    shown.clear()
    obfuscator = fitted(windows, rounds=2)
    raw, output = (obfuscator.scaling_.apply(signal) for signal in (windows.signal, first))
    for got, wanted in zip(shown, (raw, raw, output, output), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-3)


def recordings(activity, size=5):
    """Recordings of some windows each, each of one activity."""
    codes = np.repeat(activity, size)
    windows = Windows.from_signal(np.zeros((len(codes), 1, 8)), {"activity": codes})
    return replace(windows, recording=np.repeat(np.arange(len(activity)), size))


def test_whole_recordings_validate():
    windows = recordings([0, 1] * 20)
    masks = [
        validation_windows(windows, ["activity"], 0.1, np.random.default_rng(seed))
        for seed in (1, 1, 2)
    ]
    assert all(mask.sum() == 20 for mask in masks)
    assert all((mask.reshape(40, 5).all(1) == mask.reshape(40, 5).any(1)).all() for mask in masks)
    assert (masks[0] == masks[1]).all()
    assert (masks[0] != masks[2]).any()


def test_the_only_recording_of_a_class_does_not_validate():
    windows = recordings([0, 0, 0, 1, 2])
    for seed in range(20):
        mask = validation_windows(windows, ["activity"], 0.9, np.random.default_rng(seed))
        assert set(windows.codes("activity")[~mask]) == {0, 1, 2}
        assert mask.sum() == 10
    windows.labels["activity"][:15] = UNKNOWN  # no class is lost with those, so all may go
    assert validation_windows(windows, ["activity"], 0.5, np.random.default_rng(0)).sum() == 15


def test_where_no_recording_can_validate():
    metrics = fitted(replace(example_windows(), recording=np.zeros(96, int))).metrics_
    assert metrics["validation_windows"] == 0
    assert len(metrics["validation_loss_1"]) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "nonsense"},
        {"width": 0},
        {"loss_weights": (1.0, -1.0, 1.0)},
        {"validation_share": 1.0},
        {"learning_rate": float("nan")},
    ],
    ids=str,
)
def test_settings_without_sense_are_refused(wrong):
    with pytest.raises(Refusal, match=next(iter(wrong))):
        AAE(**wrong)
