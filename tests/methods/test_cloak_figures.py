"""Figure 5 and table VI as functions: information over training, and what networks cost."""

from __future__ import annotations

import numpy as np

from sensorveil.data.windows import Windows
from sensorveil.measures.information import entropy
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.cloak_figures import information_over_training, overhead
from sensorveil.methods.conformance import example_windows

SETTINGS = {"epochs": 1, "coder_epochs": 1, "reader_epochs": 2, "reader_batch": 24, "width": 16}


def test_the_class_is_learnt_and_noise_is_not() -> None:
    windows = example_windows()
    obfuscator = Cloak(**SETTINGS).fit(windows, "activity", "gender")
    held = example_windows(seed=3)
    labels = {
        "activity": held.labels["activity"],
        "noise": np.random.default_rng(0).integers(2, size=96),
    }
    held = Windows.from_signal(held.signal, labels, held.sample_rate)
    found = information_over_training(obfuscator, windows, held, quick=True)
    assert len(found) == 2
    assert set(found[0]) == {"activity", "noise", "subject"}
    assert found[-1]["activity"] > 0.5 * entropy(held.labels["activity"])
    assert found[-1]["noise"] < 0.2


def test_the_last_epoch_is_the_encoder_of_the_run() -> None:
    """Trained on the same windows, from the same seed: figures are of the very encoder."""
    windows = example_windows()
    obfuscator = Cloak(**SETTINGS).fit(windows, "activity", "gender")
    scaled = windows.scaled(obfuscator.scaling_)
    again, losses = obfuscator.train_encoder(scaled, "activity")
    assert losses == obfuscator.metrics_["encoder_loss_activity"]
    own = obfuscator.encoded(obfuscator.nets_["encoder.activity"], scaled)
    assert (obfuscator.encoded(again, scaled) == own).all()


def test_the_table_counts_every_network() -> None:
    windows = example_windows()
    obfuscator = Cloak(**SETTINGS).fit(windows, "activity", "gender")
    table = overhead(obfuscator, windows)
    networks = table["networks"]
    assert list(networks) == [*obfuscator.nets_, "panel", "total"]
    assert networks["total"]["parameters"] == sum(
        networks[which]["parameters"] for which in (*obfuscator.nets_, "panel")
    )
    # Convolutions, dense layers and norms of the four members, but no running means.
    weights = {
        k: v for k, v in obfuscator.panel_.state().items() if ".net." in k and "running" not in k
    }
    counted = sum(v.size for k, v in weights.items() if "num_batches" not in k)
    assert networks["panel"]["parameters"] == counted
    assert networks["total"]["megabytes"] < 10
    assert table["seconds_a_window"] > 0
