"""Golden outputs: what seeded methods and one seeded audit gave before the redesign.

`python tests/golden/test_golden.py` writes the file anew; do so only where bits change on purpose.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sensorveil.data.catalog import load
from sensorveil.methods.conformance import _short, example_windows
from sensorveil.methods.registry import list_methods, method

STORED = Path(__file__).with_name("golden.json")
COMPLEX = ("csi", "csi-vae", "cloak", "privdiffuser", "blinder", "obscurenet", "seal", "noise")
CASES = [
    *(
        (name, "signal")
        for name in list_methods()
        if "signal" in method(name).capabilities.modalities
    ),
    *((name, "complex") for name in COMPLEX),
    ("cloak", "image"),
]


def of_method(name, modality):
    """A few numbers of a seeded fit and obfuscate: rounded, since sums depend on the machine."""
    windows = example_windows(modality)
    hidden = (
        _short(method(name)).fit(windows, keep="activity", hide="gender").obfuscate(windows, seed=1)
    )
    signal = hidden.signal
    parts = np.stack([signal.real, signal.imag]) if np.iscomplexobj(signal) else signal[None]
    parts = (parts / windows.signal.std()).astype(float).reshape(len(parts) * len(windows), -1)
    return [*parts.mean(1)[::16].round(5).tolist(), *parts.std(1)[::16].round(5).tolist()]


def of_audit():
    """What a quick audit of `noise` on simulated windows finds."""

    split = load("simulated", "recording", people=8)
    obfuscator = method("noise")(snr=5.0).fit(split.train, keep="activity", hide="gender")
    part = obfuscator.audit(split).main
    found = {
        one.attribute: {f"{a.threat_model} / {a.attacker}": a.accuracy.value for a in one.attacks}
        for one in part.attributes
    }
    return found | {"kept": part.kept[0].unchanged.value}


@pytest.mark.parametrize(("name", "modality"), CASES)
def test_output_of(name, modality):
    stored = json.loads(STORED.read_text())[f"{name} {modality}"]
    np.testing.assert_allclose(of_method(name, modality), stored, atol=2e-3)


@pytest.mark.slow
def test_audit():
    stored = json.loads(STORED.read_text())["audit"]
    for name, found in of_audit().items():
        assert found == pytest.approx(stored[name], abs=0.02), name


if __name__ == "__main__":
    torch.set_num_threads(1)
    old = json.loads(STORED.read_text()) if STORED.exists() else {}
    only = sys.argv[1:]
    new = {f"{n} {m}": of_method(n, m) for n, m in CASES if not only or n in only}
    if not only or "audit" in only:
        new["audit"] = of_audit()
    STORED.write_text(json.dumps(old | new, indent=1) + "\n")
