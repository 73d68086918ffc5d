"""CLOAK's coin: a hidden class that is drawn for each window, and what is made of it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from cloak_sizes import TINY

from sensorveil.data.windows import UNKNOWN
from sensorveil.diffusion.samplers import SAMPLERS
from sensorveil.errors import Refusal
from sensorveil.methods.cloak import Cloak
from sensorveil.methods.conformance import example_windows
from sensorveil.methods.run import load_run, save_run


@pytest.fixture(scope="module")
def tiny() -> Cloak:
    return Cloak(**TINY).fit(example_windows(), "activity", "gender")


def test_with_a_coin_hidden_classes_come_out_evenly(tmp_path: Path) -> None:
    """Gender 1 has waves half as large again: how many of those come out can be counted."""
    windows = example_windows()
    few = windows.select((windows.labels["gender"] == 0) | (np.arange(len(windows)) % 12 < 4))
    assert few.labels["gender"].mean() < 0.3
    settings = {**TINY, "coin": True, "epochs": 1500, "width": 64, "levels": 1000, "steps": 8}
    settings |= {"keep": 1.0, "tries": 1, "panel": 0, "judge": "features", "coder_epochs": 20}
    obfuscator = Cloak(batch=48, **settings).fit(few, "activity", "gender")

    def large(made: Cloak) -> float:
        heights = made.obfuscate(windows, seed=1).signal[:, 0].std(axis=1) / 9.81
        return float((heights > 1.25 / np.sqrt(2)).mean())

    assert 0.4 < large(obfuscator) < 0.6
    assert large(obfuscator.with_settings(coin=False)) < 0.35
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.obfuscate(windows, seed=1).signal, obfuscator.obfuscate(windows, seed=1).signal
    )


def test_a_coin_is_thrown_anew_for_each_window_whoever_it_is(tiny: Cloak) -> None:
    windows = example_windows().scaled(tiny.scaling_)
    obfuscator = Cloak(**{**TINY, "coin": True}).fit(
        example_windows(), "activity", ["gender", "weight"]
    )
    thrown = [obfuscator._inputs(windows, {}, np.random.default_rng(n))["role"] for n in range(200)]
    shares = torch.stack(thrown).mean(0)  # 4 combinations: 1 / 4, with a deviation of 0.03
    assert shares.shape == (len(windows), 4)
    assert (shares - 1 / 4).abs().max() < 0.15
    assert (torch.stack(thrown).sum(-1) == 1).all()
    with pytest.raises(Refusal, match="'coin' cannot be true"):
        tiny.with_settings(coin=True)


def test_the_drawn_class_is_amplified_where_there_is_much_noise_only() -> None:
    """At the lower 0.4 of the levels both halves of the guidance are told it."""
    windows = example_windows()
    obfuscator = Cloak(**{**TINY, "coin": True, "steps": 50}).fit(windows, "activity", "gender")
    seen: dict[int, torch.Tensor] = {}

    class Look(torch.nn.Module):
        def forward(self, x: torch.Tensor, t: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
            seen[int(t[0])] = told
            return x

    obfuscator.nets_["generator"] = Look()
    obfuscator.obfuscate(windows.select([0, 1, 2]), seed=1)
    size = obfuscator.settings.features
    assert min(seen) < 19 < 20 < max(seen)
    for level, told in seen.items():
        towards, plain = told.chunk(2)
        assert (towards[:, size:].sum(1) == 1).all()
        assert (plain[:, :size] == 0).all()
        torch.testing.assert_close(plain[:, size:], towards[:, size:] * (level < 20))


def test_with_tries_what_is_told_beside_belongs_to_its_window() -> None:
    """The small denoiser works out conditions once for all tries; by hand, each try by itself."""
    windows = example_windows().select(np.arange(5))
    obfuscator = Cloak(**{**TINY, "coin": True, "tries": 3, "steps": 9}).fit(
        example_windows(), "activity", "gender"
    )
    inputs = obfuscator._inputs(windows.scaled(obfuscator.scaling_), {}, np.random.default_rng(3))
    assert len(inputs["role"].unique(dim=0)) == 2
    levels, net = obfuscator._levels(), obfuscator.nets_["generator"]
    torch.manual_seed(0)
    for weight in net.parameters():  # what little it has learnt hardly heeds what it is told
        torch.nn.init.normal_(weight, std=0.3)
    low, high = torch.from_numpy(obfuscator.limits_)

    def one_try(row: int, which: int) -> torch.Tensor:
        told, role = inputs["told"][row : row + 1], inputs["role"][row : row + 1]
        whole = torch.cat([told, role], dim=1)
        alone = torch.cat([torch.zeros_like(told), role], dim=1)

        def led(x: torch.Tensor, t: int) -> torch.Tensor:
            at = torch.tensor([t])
            plain = net(x, at, alone if t < 20 else torch.zeros_like(whole))
            towards = net(x, at, whole)
            clean = levels.clean_of(x, towards + obfuscator.settings.keep * (towards - plain), t)
            return levels.epsilon_of(x, clean.clamp(low, high), t)

        made = SAMPLERS["dpm-solver++"](led, inputs["noise"][row, which][None], levels, 9, None)
        return obfuscator._finished(made)[0]

    with torch.no_grad():
        found = obfuscator._sampling(torch.Generator(), many=False)(inputs)
        for row in range(5):
            apart = [float((found[row] - one_try(row, which)).abs().max()) for which in range(3)]
            assert min(apart) < 1e-3 < sorted(apart)[1]


def test_runs_whose_drawn_class_was_not_learnt_by_itself_are_not_led_by_it() -> None:
    windows = example_windows()
    obfuscator = Cloak(**{**TINY, "coin": True}).fit(windows, "activity", "gender")
    piece = obfuscator._inputs(windows.scaled(obfuscator.scaling_), {}, np.random.default_rng(0))
    assert obfuscator._beside(piece) is not None
    older = {name: array for name, array in obfuscator._state().items() if name != "apart"}
    again = copy.copy(obfuscator)
    again._restore(older)
    assert again._beside(piece) is None
    again._restore(obfuscator._state())
    assert again._beside(piece) is not None


def test_no_coin_is_thrown_for_who_it_is(tiny: Cloak, tmp_path: Path) -> None:
    """Else each window would be made after one of the people in the training."""
    windows = example_windows()
    both = Cloak(**{**TINY, "coin": True}).fit(windows, "activity", ["gender", "subject"])
    assert both.roles_.tolist() == [[0], [1]]
    obfuscator = Cloak(**{**TINY, "coin": True}).fit(windows, "activity", "subject")
    without = Cloak(**TINY).fit(windows, "activity", "subject")
    again = load_run(save_run(obfuscator, tmp_path / "run"))
    for made in (obfuscator, again.with_settings(keep=obfuscator.settings.keep)):
        np.testing.assert_array_equal(
            made.obfuscate(windows, seed=1).signal, without.obfuscate(windows, seed=1).signal
        )


def test_a_coin_needs_hidden_classes_that_are_known_together() -> None:
    windows = example_windows()
    for name, rows in (("gender", slice(0, 48)), ("weight", slice(48, None))):
        windows.labels[name][rows] = UNKNOWN
    with pytest.raises(Refusal, match="'coin' needs windows"):
        Cloak(**{**TINY, "coin": True}).fit(windows, "activity", ["gender", "weight"])


def test_runs_from_before_the_coin_are_read(tiny: Cloak) -> None:
    older = {name: array for name, array in tiny._state().items() if name != "roles"}
    again = copy.copy(tiny)
    again._restore(older)
    np.testing.assert_array_equal(
        again.obfuscate(example_windows(), seed=1).signal,
        tiny.obfuscate(example_windows(), seed=1).signal,
    )
