"""Recipes: all can be read, and what they name exists."""

from __future__ import annotations

from pathlib import Path

import pytest

import sensorveil
from benchmarks.accuracy import federation
from benchmarks.recipe import names, recipe
from sensorveil.cli.main import app
from sensorveil.data.catalog import dataset, list_datasets
from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig
from sensorveil.methods.registry import method


@pytest.mark.parametrize("name", names())
def test_a_recipe_names_what_exists(name: str) -> None:
    found = recipe(name)
    assert found.data in list_datasets()
    assert found.split in dataset(found.data).protocol().splits
    assert not set(found.hide) & set(found.keep)
    for row in found.rows:
        kind = method(row.method)
        modifier = {"modifier": row.modifier} if row.modifier else {}
        kind(found.preset_of(row.method, "paper"), **row.settings, **row.with_settings, **modifier)
        changed = {kind.Settings.full_name(name) for name in row.with_settings}
        assert changed <= {*kind.adjustable, "training.mutual_information_weight"}
        federation(row, {}, seed=0)
        assert set(row.federation) <= {"fedblinder", *FederationConfig.names()}
        assert set(row.strength) <= {"guidance_scale", *found.hide}
    known = {name for row in found.rows for name in method(row.method).Settings.names()}
    assert set(found.settings) <= known | {name.rpartition(".")[2] for name in known}
    for part in found.parts.values():
        kind = method(found.rows[-1].method)
        for settings in (part.get("with_settings", {}), *part.get("each", ())):
            if isinstance(settings, dict):
                kind(**settings)
        attributes = {key.removesuffix("_f1") for key in row.paper}
        assert attributes <= set(found.attributes)
        assert all(0 < value < 100 for value in row.paper.values())


def test_the_papers_own_settings() -> None:
    """Section 6: a code of 10 numbers for MotionSense and 5 for MobiAct; the grid of 6.2."""
    motion = recipe("obscurenet-motionsense-gender")
    assert motion.settings["latent_size"] == 10
    grid = motion.parts["grid"]
    assert (len(grid["alpha"]), len(grid["beta"])) == (4, 6)
    assert all(recipe(n).settings["latent_size"] == 5 for n in names() if "obscurenet-mobiact" in n)
    assert recipe("obscurenet-mobiact-both").hide == ("gender", "weight")


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with pytest.raises(Refusal, match="obscurenet-motionsense-gender"):
        recipe("obscurenet")


def test_without_a_checkout_the_command_says_where_recipes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sensorveil, "__file__", str(tmp_path / "site" / "sensorveil" / "x.py"))
    with pytest.raises(Refusal, match="clone the repository"):
        app(["papers", "list"], standalone_mode=False)
