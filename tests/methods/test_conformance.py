"""Every registered method goes through every check; and the checks catch methods that cheat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sensorveil.data.windows import UNKNOWN
from sensorveil.errors import Refusal
from sensorveil.methods import conformance
from sensorveil.methods.base import Capabilities
from sensorveil.methods.baselines import NoObfuscation
from sensorveil.methods.registry import list_methods, method
from sensorveil.methods.run import load_run, save_run

every_method = pytest.mark.parametrize("name", sorted(list_methods()))


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
@every_method
def test_method_conforms(name, check):
    check(method(name), conformance.example_windows())


def fitted(name, windows):
    return conformance._short(method(name)).fit(windows, "activity", "gender")


@every_method
def test_windows_of_unknown_class_are_no_obstacle(name):
    """Some have no known kept class, some no known hidden one, and some neither."""
    windows = conformance.example_windows()
    labels = {attribute: codes.copy() for attribute, codes in windows.labels.items()}
    labels["activity"][:30], labels["gender"][20:50] = UNKNOWN, UNKNOWN
    windows = replace(windows, labels=labels)
    assert np.isfinite(fitted(name, windows).obfuscate(windows, seed=1).signal).all()


@every_method
def test_a_run_that_lacks_an_array_is_refused(name, tmp_path):
    """At most twenty arrays of each method, left out one by one; torch can spare a counter."""
    folder = save_run(fitted(name, conformance.example_windows()), tmp_path / "run")
    model = folder / "model.safetensors"
    arrays = load_file(model)
    needed = [name for name in sorted(arrays) if "num_batches_tracked" not in name]
    for missing in needed[:: -(-len(needed) // 20)]:
        save_file({one: array for one, array in arrays.items() if one != missing}, model)
        with pytest.raises(Refusal) as caught:
            load_run(folder)
        assert missing.rpartition(".")[2] in str(caught.value)
        assert "\n" not in str(caught.value)


@every_method
def test_each_window_may_have_its_own_strength(name):
    """Half of the windows come out as if all had their strength, for each of single windows."""
    windows, odd = conformance.example_windows(), np.arange(24) % 2 == 1
    obfuscator, size = fitted(name, windows), windows.signal.std((0, 2), keepdims=True)
    windows = windows.select(slice(0, 24))
    for strength in obfuscator.strength_names():
        if strength in OF_INTERVALS.get(name, ()):
            continue
        given = (np.where(odd, 2.0, 4.0), 2.0, 4.0)
        try:
            mixed, weak, strong = (
                obfuscator.obfuscate(windows, {strength: value}, seed=1).signal / size
                for value in given
            )
        except Refusal:
            assert strength in CANNOT_ACT_ALONE[name]
            continue
        wanted = np.where(odd[:, None, None], weak, strong)
        assert (weak != strong).any()
        limit = max(0.02 * np.abs(weak - strong).max(), 1e-5)
        # Where two candidates are as likely but for rounding, the other may be chosen.
        assert (np.abs(mixed - wanted).max((1, 2)) < limit).mean() > 0.95


CANNOT_ACT_ALONE = {"noise": ("epsilon",), "seal": ("budget",)}
OF_INTERVALS = {"seal": ("epsilon",)}  # all windows of an interval have that of its first


class Leaky(NoObfuscation):
    """Uses the true label although it says it does not."""

    def _obfuscate(self, windows, strength, rng):
        gender = windows.labels["gender"].reshape(-1, *(1,) * len(windows.shape))
        return windows.signal * (1 + gender)


class Frozen(NoObfuscation):
    """Says that it is random and is not."""

    capabilities = Capabilities(random=True)


class Spilling(NoObfuscation):
    """Lets NaN out."""

    def _obfuscate(self, windows, strength, rng):
        return windows.signal * np.nan


class Unscaled(NoObfuscation):
    """Leaves units that depend on the input's."""

    def _obfuscate(self, windows, strength, rng):
        return windows.signal + 1 / self.scaling_.deviation


class Forgetful(NoObfuscation):
    """Learns something that its state leaves out."""

    def _fit(self, windows, rng):
        self.offset_ = 1.0

    def _obfuscate(self, windows, strength, rng):
        return windows.signal + getattr(self, "offset_", 0.0)


class Reseeded(NoObfuscation):
    """Does not keep the seed that it is given."""

    def __init__(self, preset="fast", seed=0, device="cpu", **settings):
        super().__init__(preset, seed + 1, device, **settings)


@pytest.mark.parametrize(
    ("made", "check"),
    [
        (Leaky, conformance.check_labels_are_not_used),
        (Frozen, conformance.check_seed_decides),
        (Spilling, conformance.check_output_fits_the_input),
        (Unscaled, conformance.check_units_are_kept),
        (Forgetful, conformance.check_round_trip),
        (Reseeded, conformance.check_parameters),
    ],
)
def test_checks_catch_cheats(made, check):
    with pytest.raises((AssertionError, Refusal)):
        check(made, conformance.example_windows())
