"""MaSS: its networks and losses by hand, what it keeps and hides, and the limits it is given."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.mass import (
    AttributeNetwork,
    Mass,
    Transform,
    info_nce,
    known_cross_entropy,
    label_entropy,
    lower_limit_loss,
    upper_limit_loss,
)
from sensorveil.train import seeded

QUICK = ClassifierSettings(width=8, epochs=12, batch_size=32, learning_rate=5e-3)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_sizes_of_the_authors_code_on_motionsense():
    """Linear 512-256, 256-256 and 256-256; convolutions 16-32-64-64, then 512-256-K."""

    def dense(network):
        layers = [one for one in network.modules() if isinstance(one, nn.Linear)]
        return [(one.in_features, one.out_features) for one in layers]

    assert dense(Transform((2, 128))) == [(512, 256), (256, 256), (256, 256)]
    assert dense(AttributeNetwork((2, 128), outputs=4)) == [(512, 256), (256, 4)]


def test_the_transform_by_hand():
    """relu(W2 relu(W1 [x, noise]) + x), where both norms leave things as they are, then a layer."""
    with seeded(0):
        network = Transform((1, 3)).eval().double()
    x, noise = numbers(4, 1, 3).double(), numbers(4, 1, 3, seed=1).double()
    first, second = network.block[0].weight, network.block[3].weight
    norm = 1 / math.sqrt(1 + 1e-5)  # untouched running statistics: mean 0 and variance 1
    inner = (torch.cat([x[:, 0], noise[:, 0]], 1) @ first.T * norm).relu() @ second.T * norm
    wanted = (inner + x[:, 0]).relu() @ network.output.weight.T + network.output.bias
    torch.testing.assert_close(network(x, noise)[:, 0], wanted)


@pytest.mark.parametrize(
    ("loss", "limit", "information", "beyond"),
    [
        (upper_limit_loss, 0.2, 0.5, 0.3),
        (upper_limit_loss, 0.2, 0.1, 0.0),
        (lower_limit_loss, 0.6, 0.5, 0.1),
        (lower_limit_loss, 0.6, 0.65, 0.0),
    ],
)
def test_information_beyond_its_limit_has_a_price(loss, limit, information, beyond):
    """I = H - CE, above the limit of what is hidden or below that of what is kept."""
    found = loss(torch.tensor(math.log(2) - information), math.log(2), limit)
    assert float(found) == pytest.approx(beyond + beyond**2, abs=1e-6)


def test_info_nce_against_loops_over_all_pairs():
    some, others = numbers(5, 4).double(), numbers(5, 4, seed=1).double()
    first, second = nn.functional.normalize(some), nn.functional.normalize(others)
    total = 0.0
    for a, b in ((first, second), (second, first)):
        for i in range(5):
            powers = [math.exp(float(a[i] @ b[j]) / 0.2) for j in range(5)]
            total -= math.log(powers[i] / sum(powers))
    assert float(info_nce(some, others, temperature=0.2)) == pytest.approx(total / 10, rel=1e-5)


def test_entropy_and_cross_entropy_leave_the_unknown_out():
    labels = torch.tensor([0, 0, 1, UNKNOWN])
    wanted = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert label_entropy(labels) == pytest.approx(wanted)
    scores = numbers(4, 2)
    known = nn.functional.cross_entropy(scores[:3], labels[:3])
    torch.testing.assert_close(known_cross_entropy(scores, labels), known)
    assert float(known_cross_entropy(scores, torch.full((4,), UNKNOWN))) == 0.0


def test_short_windows_are_not_pooled_away():
    assert AttributeNetwork((1, 3), 2)(numbers(4, 1, 3)).shape == (4, 2)


def two_channels(count=384, seed=0):
    """The activity is in the rhythm of one channel, the gender in the level of the other."""
    rng = np.random.default_rng(seed)
    activity, gender = np.arange(count) % 2, np.arange(count) // 2 % 2
    signal = 0.3 * rng.normal(size=(count, 2, 16))
    signal[:, 0] += np.sin(np.arange(16) * (0.4 + activity[:, None]))
    signal[:, 1] += gender[:, None] - 0.5
    labels = {"activity": activity, "gender": gender, "subject": np.arange(count) % 8}
    return Windows.from_signal(signal, labels, sample_rate=50.0)


@pytest.fixture(scope="module")
def windows():
    return two_channels()


@pytest.fixture(scope="module")
def obfuscator(windows):
    return Mass(epochs=35, learning_rate=3e-3).fit(windows, "activity", "gender")


def accuracy(train, test, name):
    """Of a classifier that is trained on some windows and applied to others."""
    return float((Classifier(QUICK).fit(train, name).predict(test) == test.codes(name)).mean())


@pytest.mark.slow
def test_what_is_hidden_goes_and_what_is_kept_stays(obfuscator, windows):
    output = obfuscator.obfuscate(two_channels(seed=1), seed=1)
    assert accuracy(windows, output, "activity") > 0.85
    assert accuracy(windows, output, "gender") < 0.75


@pytest.mark.slow
def test_a_limit_that_allows_everything_hides_nothing(windows):
    obfuscator = Mass(epochs=10, learning_rate=3e-3, max_hidden_information=1.0)
    obfuscator.fit(windows, "activity", "gender")
    output = obfuscator.obfuscate(two_channels(seed=1), seed=1)
    # The gender need not stay where classifiers of raw windows find it, so one is retrained.
    assert accuracy(obfuscator.obfuscate(windows, seed=2), output, "gender") > 0.98


@pytest.mark.slow
def test_its_adversary_does_as_well_as_a_retrained_attacker(obfuscator, windows):
    losses = obfuscator.metrics_["adversary_loss"]
    assert len(losses) == 35
    leaked = obfuscator.obfuscate(windows, seed=2)
    found = accuracy(leaked, obfuscator.obfuscate(two_channels(seed=1), seed=1), "gender")
    assert (found > 0.75) == (losses[-1] < 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_hidden_information", -0.1), ("min_kept_information", 1.1), ("epochs", 0)],
)
def test_settings_without_sense_are_refused(name, value):
    with pytest.raises(Refusal, match=name):
        Mass(**{name: value})
