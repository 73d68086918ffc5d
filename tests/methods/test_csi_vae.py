"""The complex VAE makes windows of the class it is told, of one length, and promises nothing."""

from __future__ import annotations

import numpy as np
import pytest

from sensorveil.errors import Refusal
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.csi_vae import CsiVae


def test_its_windows_are_of_the_class() -> None:
    """The two activities differ in frequency: 0.4 and 1.0 radians a sample."""
    obfuscator = CsiVae(seed=1, epochs=80).fit(example_windows("complex"), "activity", "gender")
    losses = obfuscator.metrics_["generator_loss"]
    assert losses[-1] < 0.8 * losses[0]
    found = []
    for name in ("0", "1"):
        made = obfuscator.generate({"activity": name}, 60, seed=0).signal.real
        spectrum = np.abs(np.fft.rfft(made - made.mean(-1, keepdims=True)))[:, 0].mean(0)
        found.append(spectrum[5] / spectrum[2])  # 5 and 2 of 32 turns are nearest
    assert found[1] > 2 * found[0]


def test_no_promise_and_no_other_length() -> None:
    obfuscator = CsiVae(epochs=1, reader_epochs=1).fit(example_windows(), "activity", "gender")
    assert obfuscator.guarantee().epsilon is None
    with pytest.raises(Refusal, match="32 samples"):
        obfuscator.generate({"activity": "0"}, 2, length=50)


def test_errors_are_low_where_it_learnt() -> None:
    windows = example_windows("complex")
    learnt, others = windows.select(slice(0, 16)), windows.select(slice(16, 32))
    obfuscator = CsiVae(seed=1, epochs=150).fit(learnt, "activity", "gender")
    assert np.median(obfuscator.errors(learnt)) < 0.9 * np.median(obfuscator.errors(others))
    np.testing.assert_array_equal(obfuscator.errors(learnt), obfuscator.errors(learnt))
