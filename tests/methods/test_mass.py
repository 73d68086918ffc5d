"""MaSS: keeps what is listed as kept, loses what is hidden, and keeps to the limits it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal
from sensorveil.measures.inference import Classifier, ClassifierSettings
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.mass import Mass

READER = ClassifierSettings(width=8, epochs=12, batch=32, rate=5e-3)


def two_channels(count: int = 512, seed: int = 0) -> Windows:
    """The activity is in the rhythm of one channel, the gender in the level of the other."""
    chance = np.random.default_rng(seed)
    activity, gender = np.arange(count) % 2, np.arange(count) // 2 % 2
    signal = 0.3 * chance.normal(size=(count, 2, 16))
    signal[:, 0] += np.sin(np.arange(16) * (0.4 + activity[:, None]))
    signal[:, 1] += gender[:, None] - 0.5
    labels = {"activity": activity, "gender": gender, "subject": np.arange(count) % 8}
    return Windows.from_signal(signal, labels, sample_rate=50.0)


@pytest.fixture(scope="module")
def windows() -> Windows:
    return two_channels()


@pytest.fixture(scope="module")
def obfuscator(windows: Windows) -> Mass:
    return Mass(epochs=25, rate=3e-3).fit(windows, "activity", "gender")


def read_right(train: Windows, hidden: Windows, name: str) -> float:
    """How often a model of the training windows reads the hidden ones right."""
    return float((Classifier(READER).fit(train, name).predict(hidden) == hidden.codes(name)).mean())


def test_what_is_hidden_goes_and_what_is_kept_stays(obfuscator: Mass, windows: Windows) -> None:
    hidden = obfuscator.obfuscate(two_channels(seed=1), seed=1)
    assert read_right(windows, hidden, "activity") > 0.85
    assert read_right(windows, hidden, "gender") < 0.75


def test_a_limit_that_allows_everything_hides_nothing(windows: Windows) -> None:
    obfuscator = Mass(epochs=10, rate=3e-3, allowed=1.0).fit(windows, "activity", "gender")
    hidden = obfuscator.obfuscate(two_channels(seed=1), seed=1)
    # Nothing asks it to leave the gender where a model of raw windows looks for it, so one is asked
    # that learns from the output.
    assert read_right(obfuscator.obfuscate(windows, seed=2), hidden, "gender") > 0.98


def test_its_own_adversary_says_what_a_retrained_attacker_finds(
    obfuscator: Mass, windows: Windows
) -> None:
    """The loss of the adversary trained along is that of one who learns from the output."""
    losses = obfuscator.metrics_["adversary_loss"]
    assert len(losses) == 25
    leaked = obfuscator.obfuscate(windows, seed=2)
    right = read_right(leaked, obfuscator.obfuscate(two_channels(seed=1), seed=1), "gender")
    assert (right > 0.75) == (losses[-1] < 0.5)


def test_unknown_classes_do_no_harm() -> None:
    windows = example_windows()
    gender = windows.labels["gender"].copy()
    gender[:40] = UNKNOWN
    windows = replace(windows, labels={**windows.labels, "gender": gender})
    obfuscator = Mass(epochs=2).fit(windows, "activity", "gender")
    assert np.isfinite(obfuscator.obfuscate(windows, seed=1).signal).all()


def test_the_paper_preset_is_the_authors_code() -> None:
    chosen = Mass("paper").settings
    assert (chosen.epochs, chosen.batch, chosen.rate) == (200, 128, 5e-5)
    assert (chosen.reader_epochs, chosen.reader_batch, chosen.reader_rate) == (100, 256, 5e-4)
    assert (chosen.allowed, chosen.features, chosen.width) == (0.0, 128, 16)


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [("allowed", -0.1, "0 or more"), ("wanted", 1.1, "1 at most"), ("epochs", 0, "above 0")],
)
def test_settings_are_checked(name: str, value: float, limit: str) -> None:
    with pytest.raises(Refusal, match=limit):
        Mass(**{name: value})
