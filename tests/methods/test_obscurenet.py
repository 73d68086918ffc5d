"""ObscureNet and its baselines: algorithm 1 by hand, modifiers, means, and many trained at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.obscurenet import (
    Algorithm1,
    Autoencoders,
    NetworkData,
    ObscureNet,
    ObscureNetPipeline,
    fit_many,
    modify,
    shuffled,
)
from sensorveil.methods.obscurenet_baselines import (
    AttributeCAE,
    AttributeCVAE,
    AttributeVAE,
    GeneralVAE,
    mean_effects,
)
from sensorveil.methods.run import load_run, save_run
from sensorveil.vae import StackedMLP

BASELINES = (AttributeCAE, AttributeCVAE, AttributeVAE, GeneralVAE)
QUICK = {"epochs": 3, "classifier.epochs": 4, "classifier.width": 8}


def fitted(made=ObscureNet, windows=None, hide="gender", **settings):
    windows = example_windows() if windows is None else windows
    return made(**{**QUICK, **settings}).fit(windows, "activity", hide)


# Algorithm 1.

COUNTS, BATCH = (2, 3), 16


def planted(count=90):
    """Windows of six numbers whose first number depends on the first of two hidden attributes."""
    hidden = torch.stack([torch.arange(count) % 2, torch.arange(count) // 2 % 3], dim=1)
    signal = torch.randn(count, 1, 6, generator=torch.Generator().manual_seed(0))
    signal[:, 0, 0] += 3 * hidden[:, 0]
    return Windows.from_signal(signal.numpy()).on("cpu"), hidden


def network_data():
    """Three networks of other windows, seeds, weights; the last has fewer windows than a batch."""
    _, hidden = planted()
    parts = (torch.arange(0, 50), torch.arange(50, 80), torch.arange(80, 90))
    weights = zip(parts, (0.2, 1.0, 0.0), (2.0, 0.5, 10.0), strict=True)
    return [NetworkData(part, hidden[part], 10 + i, a, b) for i, (part, a, b) in enumerate(weights)]


def algorithm(data, kind="obscurenet", windows=None, counts=COUNTS, sizes=(8, 8, 8), batch=BATCH):
    generators = [torch.Generator().manual_seed(one.seed) for one in data]
    given = () if kind == "vae" else counts
    autoencoders = Autoencoders(generators, 6, given, (16, 8), 3, variational=kind != "cae")
    discriminators = nn.ModuleList(
        StackedMLP(generators, (3, *sizes, count))
        for count in (counts if kind == "obscurenet" else ())
    )
    windows = planted()[0] if windows is None else windows
    return Algorithm1(autoencoders, discriminators, counts, data, windows, batch)


def trained(data, kind="obscurenet", epochs=3):
    found = algorithm(data, kind)
    found.train("test", epochs, 1e-3, discriminator_steps=3)
    return found


@pytest.mark.parametrize("kind", ["obscurenet", "cvae", "cae", "vae"])
def test_networks_learn_the_same_at_once_and_one_by_one(kind):
    together = trained(network_data(), kind)
    (largest, *_) = network_data()  # it says how many steps there are
    alone = trained([largest], kind)
    torch.testing.assert_close(together.terms[:, 0], alone.terms[:, 0], rtol=1e-4, atol=1e-5)
    for name, weights in alone.autoencoders.state_dict().items():
        torch.testing.assert_close(
            together.autoencoders.state_dict()[name][0], weights[0], rtol=1e-3, atol=1e-5
        )


def step_by_hand(found, x, hidden, noise, alpha, beta):
    """Algorithm 1 for one network and one batch, with torch's own losses and Adam."""
    autoencoders, discriminators = found.autoencoders, found.discriminators
    discriminator_adam = torch.optim.Adam(discriminators.parameters(), lr=1e-3)
    adam = torch.optim.Adam(autoencoders.parameters(), lr=1e-3)
    code = autoencoders.encoder(x, 0)
    mu, log_variance = code[:, :3], code[:, 3:]
    sigma = (log_variance / 2).exp()
    z = mu + sigma * noise

    def cross_entropy(z):
        return sum(
            nn.functional.cross_entropy(one(z, 0), hidden[:, place])
            for place, one in enumerate(discriminators)
        )

    for _ in range(3):
        discriminator_adam.zero_grad()
        cross_entropy(z.detach()).backward()
        discriminator_adam.step()
    y = torch.cat([nn.functional.one_hot(hidden[:, i], n) for i, n in enumerate(COUNTS)], dim=1)
    decoded = autoencoders.decoder(torch.cat([z, y.float()], dim=1), 0)
    normal = torch.distributions.Normal
    kl = torch.distributions.kl_divergence(normal(mu, sigma), normal(0, 1)).sum(1).mean()
    # The authors' form of equation (4) at beta = 2: (512 MSE + 4 KL) / 150 - alpha CE.
    elbo = (512 * nn.functional.mse_loss(decoded, x) + 4 * (beta / 2) * kl) / 150
    adam.zero_grad()
    (elbo - alpha * cross_entropy(z)).backward()
    adam.step()


def test_a_step_of_algorithm_1_by_hand():
    rows = torch.arange(BATCH)
    windows, hidden = planted()
    data = NetworkData(rows, hidden[rows], seed=3, alpha=0.7, beta=3.0)
    found, by_hand = algorithm([data]), algorithm([data])
    found.train("test", 1, 1e-3, discriminator_steps=3)
    by_hand._draw(0)
    drawn = by_hand.rows[0, 0]
    x = windows[drawn].flatten(1)
    step_by_hand(by_hand, x, hidden[drawn], by_hand.noise[0, 0], 0.7, 3.0)
    for module in ("autoencoders", "discriminators"):
        wanted = getattr(by_hand, module).state_dict()
        for name, weights in getattr(found, module).state_dict().items():
            torch.testing.assert_close(weights, wanted[name], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(("count", "wanted"), [(7, 3), (7, 7), (7, 30), (1, 4)])
def test_shuffles_show_all_before_any_twice(count, wanted):
    order = shuffled(count, wanted, torch.Generator().manual_seed(0))
    seen = torch.bincount(order, minlength=count)
    assert len(order) == wanted
    assert seen.max() - seen.min() <= 1


# Modifiers.


def test_deterministic_is_an_injective_map_without_a_fixed_point():
    predicted = np.array([[first, second] for first in range(2) for second in range(3)])
    condition = modify("deterministic", COUNTS, predicted, 6, np.random.default_rng(0))
    first, second = condition[:, :2].argmax(1), condition[:, 2:].argmax(1)
    assert (first != predicted[:, 0]).all()
    assert (second != predicted[:, 1]).all()
    assert len({*zip(first.tolist(), second.tolist(), strict=True)}) == 6
    np.testing.assert_array_equal(condition.sum(1), 2)
    with pytest.raises(ValueError, match="needs the predicted classes"):
        modify("deterministic", COUNTS, None, 4, np.random.default_rng(0))


def test_probabilistic_is_uniform_and_independent():
    condition = modify("probabilistic", COUNTS, None, 60_000, np.random.default_rng(0))
    first, second = condition[:, :2].argmax(1), condition[:, 2:].argmax(1)
    shares = np.bincount(3 * first + second, minlength=6) / 60_000
    np.testing.assert_allclose(shares, 1 / 6, atol=0.006)  # four standard deviations


def test_randomized_is_uniform_on_the_simplex():
    """A component of K has mean 1/K, variance (K-1)/(K^2 (K+1)); of two it is uniform itself."""
    condition = modify("randomized", COUNTS, None, 60_000, np.random.default_rng(0))
    pair, triple = condition[:, :2], condition[:, 2:]
    for part in (pair, triple):
        assert (part >= 0).all()
        np.testing.assert_allclose(part.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.quantile(pair[:, 0], [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.01)
    np.testing.assert_allclose(triple.var(0), 2 / 9 / 4, rtol=0.03)


def loudness_by_gender(windows, signal):
    """How loud the wave of the example windows is: 1 for gender 0 and 1.5 for gender 1."""
    gender, activity = windows.labels["gender"], windows.labels["activity"]
    wave = np.sin(np.arange(32) * (0.4 + 0.6 * activity[:, None]))
    loudness = ((signal[:, 0] / 9.81 - 5) * wave).sum(1) / (wave**2).sum(1)
    return [loudness[gender == own].mean() for own in (0, 1)]


def test_a_planted_attribute_is_swapped_and_then_random():
    windows = example_windows()
    obfuscator = ObscureNet(train_hidden_classifiers=True).fit(windows, "activity", "gender")
    expected = {"deterministic": [1.5, 1], "probabilistic": [1.25] * 2, "randomized": [1.25] * 2}
    for modifier, wanted in expected.items():
        output = obfuscator.with_settings(modifier=modifier).obfuscate(windows, seed=1)
        found = loudness_by_gender(windows, output.signal)
        np.testing.assert_allclose(found, wanted, atol=0.15)


@pytest.mark.parametrize(
    ("made", "limit"),
    # A plain autoencoder's code holds the gender whatever its decoder is given; others swap it.
    [(AttributeCAE, 0.3), (AttributeCVAE, -0.2), (AttributeVAE, 0.0), (GeneralVAE, 0.0)],
)
def test_baselines_move_a_planted_attribute(made, limit):
    windows = example_windows()
    output = made().fit(windows, "activity", "gender").obfuscate(windows, seed=1)
    soft, loud = loudness_by_gender(windows, output.signal)
    assert loud - soft < limit


# Networks, classifiers and what they are trained on.


def test_the_paper_preset_is_the_papers():
    settings = ObscureNet("paper").settings
    assert (settings.latent_size, settings.alpha, settings.beta) == (10, 0.2, 2)
    assert (settings.epochs, settings.batch_size, settings.learning_rate) == (450, 512, 1e-3)
    assert settings.modifier == "randomized"
    obfuscator = ObscureNet("paper", epochs=1, **{"classifier.epochs": 1})
    networks = obfuscator.fit(example_windows(), "activity", "gender").autoencoders_
    assert len(networks.encoder.layers) == len(networks.decoder.layers) == 5
    assert len(settings.discriminator_sizes) + 1 == 4


def test_sizes_of_the_baselines_networks():
    found = {}
    for made in BASELINES:
        networks = fitted(made, hide=["gender", "weight"], epochs=1).autoencoders_
        code, given = networks.encoder.layers[-1].weight, networks.decoder.layers[0].weight
        found[made.name] = (*code.shape[::2], given.shape[1])
    assert found == {  # networks, numbers that the encoder gives, numbers that the decoder is given
        "attribute-cae": (2, 10, 14),
        "attribute-cvae": (2, 20, 14),
        "attribute-vae": (2, 20, 10),
        "general-vae": (1, 20, 10),
    }


def relabelled(**labels):
    windows = example_windows()
    return replace(windows, labels={**windows.labels, **labels})


def test_windows_of_unknown_labels_are_left_out_of_training():
    labels = example_windows().labels
    gender, activity = labels["gender"].copy(), labels["activity"].copy()
    gender[:20], activity[10:30] = UNKNOWN, UNKNOWN
    obfuscator = fitted(windows=relabelled(gender=gender, activity=activity))
    expected = np.bincount(labels["activity"][30:]).tolist()
    assert obfuscator.metrics_["windows_by_network"] == expected


@pytest.mark.parametrize("made", [AttributeCVAE, GeneralVAE])
def test_a_class_without_any_known_hidden_label_is_refused(made):
    labels = example_windows().labels
    gender = np.where(labels["activity"] == 1, UNKNOWN, labels["gender"])
    with pytest.raises(Refusal, match="class of activity has no window whose gender is known"):
        fitted(made, relabelled(gender=gender))


def test_the_decoder_knows_only_hidden_classes_that_occur():
    gender = np.where(example_windows().labels["gender"] == 1, 4, 2)
    assert fitted(windows=relabelled(gender=gender)).class_counts_ == (2,)


@pytest.mark.parametrize(
    ("made", "modifier", "numbers"),
    [
        (AttributeCVAE, "randomized", 2 + 20),
        (AttributeCVAE, "deterministic", 2 + 20 + 2),
        (AttributeCAE, "probabilistic", 2 + 10),
        (GeneralVAE, "probabilistic", 2 + 20 + 2),
    ],
)
def test_the_condition_holds_all_that_the_output_is_made_of(made, modifier, numbers):
    obfuscator, windows = fitted(made, modifier=modifier), example_windows()
    condition = obfuscator.condition(windows)
    assert condition.shape == (96, numbers)
    standard = windows.standardized(obfuscator.scaling_)
    kept = obfuscator.kept_classifier_.predict(standard)
    np.testing.assert_array_equal(condition[:, :2].argmax(1), kept)
    network = 0 if made is GeneralVAE else int(kept[5])
    signal = torch.from_numpy(standard.signal[5]).flatten()
    with torch.no_grad():
        mu = obfuscator.autoencoders_.encode(signal[None], network)[0][0]
    np.testing.assert_allclose(condition[5, 2:12], mu, atol=1e-4)


def test_many_windows_are_obfuscated_as_one_by_one():
    obfuscator, windows = fitted(AttributeCAE), example_windows()
    together = obfuscator.obfuscate(windows).signal
    for row in (0, 1, 50):
        one = obfuscator.obfuscate(windows.select([row]).compact()).signal[0]
        np.testing.assert_allclose(together[row], one, rtol=1e-4, atol=1e-4)


# Means (section 3.1).


def test_effects_of_one_attribute_are_the_class_means():
    rng = np.random.default_rng(0)
    kept, hidden = rng.integers(2, size=200), rng.integers(3, size=200)
    codes = rng.normal(size=(200, 4)) + hidden[:, None]
    effects = mean_effects(codes, kept, np.eye(3)[hidden])
    for kept_class in range(2):
        own = kept == kept_class
        means = [codes[own & (hidden == h)].mean(0) for h in range(3)]
        np.testing.assert_allclose(effects[kept_class], means - codes[own].mean(0), atol=1e-6)


def test_effects_of_attributes_that_go_together_are_separated():
    """Class means would count twice what two attributes share; one combination never occurs."""
    rng = np.random.default_rng(0)
    kept = rng.integers(2, size=300)
    hidden = np.array([[0, 0], [1, 1], [1, 2], [0, 1], [0, 2]])[rng.integers(5, size=300)]
    first, second = np.array([0.0, 2.0]), np.array([0.0, 1.0, -3.0])
    codes = (5 + first[hidden[:, 0]] + second[hidden[:, 1]])[:, None]
    one_hot = np.concatenate([np.eye(2)[hidden[:, 0]], np.eye(3)[hidden[:, 1]]], axis=1)
    for effects in mean_effects(codes, kept, one_hot)[..., 0]:
        np.testing.assert_allclose(np.diff(effects[:2]), [2], atol=1e-5)
        np.testing.assert_allclose(np.diff(effects[2:]), [1, -4], atol=1e-5)


def test_codes_move_from_mean_to_mean():
    obfuscator = fitted(AttributeVAE)
    kept, hidden = np.array([0, 1, 1]), np.array([[0], [1], [0]])
    effects, condition = obfuscator.effects_, np.eye(2, dtype=np.float32)[[1, 0, 0]]
    expected = [effects[0, 1] - effects[0, 0], effects[1, 0] - effects[1, 1], np.zeros(10)]
    np.testing.assert_allclose(obfuscator._moves(kept, hidden, condition), expected, atol=1e-6)


# Settings that change without training, and settings that are refused.


def test_modifiers_that_cannot_work_are_refused():
    obfuscator = fitted(hide=["gender", "weight"])
    assert not obfuscator.hidden_classifiers_
    with pytest.raises(Refusal, match="needs classifiers of gender, weight"):
        obfuscator.with_settings(modifier="deterministic")
    with pytest.raises(Refusal, match="'alpha' cannot change without training"):
        obfuscator.with_settings(alpha=1.0)
    with pytest.raises(Refusal, match="modifier"):
        GeneralVAE(modifier="randomized")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_sizes", ()),
        ("hidden_sizes", "0,5"),
        ("latent_size", 0),
        ("classifier.learning_rate", 0.0),
        ("beta", -0.1),
        ("alpha", -1.0),
        ("modifier", "random"),
    ],
)
def test_settings_without_sense_are_refused(name, value):
    with pytest.raises(Refusal, match=name):
        ObscureNet(**{name: value})


# Many at once, and one after the other.


def test_obfuscators_fitted_together_are_those_fitted_alone():
    windows = example_windows()
    grid = [
        {"seed": seed, "alpha": alpha, "beta": beta}
        for seed, alpha, beta in ((1, 0.2, 2.0), (2, 0.2, 2.0), (1, 10.0, 0.1))
    ]
    together = [ObscureNet(**own, **QUICK) for own in grid]
    fit_many(together, windows, "activity", ["gender", "weight"])
    outputs = [one.obfuscate(windows, seed=3).signal for one in together]
    scale = windows.signal.std((0, 2), keepdims=True)
    for output, obfuscator, own in zip(outputs, together, grid, strict=True):
        alone = ObscureNet(**own, **QUICK).fit(windows, "activity", ["gender", "weight"])
        np.testing.assert_allclose(obfuscator.metrics_["error"], alone.metrics_["error"], rtol=1e-3)
        assert (np.abs(output - alone.obfuscate(windows, seed=3).signal) / scale).max() < 0.01
    assert together[0].kept_classifier_ is together[2].kept_classifier_  # of one seed
    assert together[0].kept_classifier_ is not together[1].kept_classifier_
    assert (outputs[0] != outputs[1]).any()
    assert (outputs[0] != outputs[2]).any()


def test_only_obfuscators_of_one_shape_are_fitted_together():
    obfuscators = [ObscureNet(**QUICK), ObscureNet(latent_size=4, **QUICK)]
    with pytest.raises(Refusal, match="fitted together must have one 'latent_size'"):
        fit_many(obfuscators, example_windows(), "activity", "gender")


@pytest.fixture(scope="module")
def pipeline():
    return fitted(ObscureNetPipeline, hide=["gender", "weight"], train_hidden_classifiers=True)


def test_each_stage_is_trained_on_raw_windows(pipeline):
    for hidden, stage in zip(("gender", "weight"), pipeline.stages_, strict=True):
        alone = fitted(hide=hidden, train_hidden_classifiers=True)
        for name, array in alone._state().items():
            np.testing.assert_array_equal(stage._state()[name], array)


def test_each_stage_is_given_the_output_of_the_one_before(pipeline):
    windows, rng = example_windows(), np.random.default_rng(7)
    expected = windows
    for stage in pipeline.stages_:
        expected = stage.obfuscate(expected, seed=int.from_bytes(rng.bytes(16), "little"))
    output = pipeline.obfuscate(windows, seed=7)
    np.testing.assert_allclose(output.signal, expected.signal, rtol=1e-4, atol=1e-4)
    first = pipeline.stages_[0].condition(windows)
    np.testing.assert_array_equal(pipeline.condition(windows), first)


def test_a_saved_pipeline_takes_other_modifiers(pipeline, tmp_path):
    windows = example_windows()
    again = load_run(save_run(pipeline, tmp_path / "run"))
    outputs = [
        each.with_settings(modifier="deterministic").obfuscate(windows, seed=1).signal
        for each in (again, pipeline)
    ]
    np.testing.assert_array_equal(*outputs)
    assert (outputs[0] != pipeline.obfuscate(windows, seed=1).signal).any()


def test_a_saved_run_has_its_classifiers(tmp_path):
    windows = example_windows("complex")
    obfuscator = fitted(AttributeVAE, windows, hide=["gender", "weight"])
    other = obfuscator.with_settings(modifier="probabilistic")
    again = load_run(save_run(other, tmp_path / "run"))
    assert again.settings.modifier == "probabilistic"
    got = again.with_settings(modifier="deterministic").obfuscate(windows, seed=1).signal
    np.testing.assert_array_equal(got, obfuscator.obfuscate(windows, seed=1).signal)
