"""sensorveil csi members: LiRA on a generator, or on what is trained from it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from sensorveil.cli import options as given
from sensorveil.cli.making import (
    Phases,
    Preset,
    Quick,
    Result,
    Set,
    check_out,
    classifier,
    maker,
)
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown


def members(
    method: Annotated[str, typer.Argument(help="csi, csi-vae, or any other method.")],
    out: Result,
    of: Annotated[
        str, typer.Option(help="classifier, trained on what was made, or the generator itself.")
    ] = "classifier",
    shadows: Annotated[int, typer.Option(help="How many shadow models.")] = 16,
    data: given.Data = "simulated-csi",
    source: given.Source = None,
    option: given.Options = None,
    keep: Annotated[str, typer.Option("--keep", help="What windows are made of.")] = "activity",
    hide: Annotated[str, typer.Option("--hide", help="What the method hides.")] = "subject",
    phases: Phases = "kept",
    preset: Preset = "fast",
    setting: Set = None,
    seed: given.Seed = 0,
    quick: Quick = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """LiRA: how many of those whom a method learnt from are found, where 1% are accused wrongly."""
    from sensorveil.audit.donors import Contender, Release
    from sensorveil.audit.lira import confidence, lira, memory
    from sensorveil.conditions import conditions
    from sensorveil.data.catalog import load_whole
    from sensorveil.data.phases import with_phases
    from sensorveil.data.splits import units
    from sensorveil.files import write_json
    from sensorveil.measures.residual import ResidualModel
    from sensorveil.methods.generator import ClassGenerator

    screen = Screen(quiet, as_json)
    check_out(out, seeds=1)
    device = given.check_device(device)
    if of not in ("classifier", "generator"):
        raise refuse_unknown("attack of", of, ["classifier", "generator"])
    make, size = maker(method, preset, setting, device), classifier(quick)
    if of == "generator" and not isinstance(make(seed), ClassGenerator):
        raise Refusal(f"{method} is no generator that could be asked; use --of classifier")
    windows, corpus, rules = load_whole(data, source, **given.data_options(option, data))
    windows = with_phases(windows, phases)
    together = units(windows, corpus, rules.rule(None)[1])
    with screen.bars():
        if of == "generator":
            attack = lira(
                lambda some, seed: make(seed).fit(some, keep, hide),
                memory,
                windows,
                shadows,
                seed,
                together,
            )
        else:
            release = Release(
                Contender(method, make),
                windows,
                np.zeros(len(windows), bool),
                keep,
                hide,
                lambda some, seed: ResidualModel(size, seed, device).fit(some, keep),
            )
            attack = lira(release.train, confidence(keep), windows, shadows, seed, together)
    content = {
        **attack.as_dict(),
        "method": method,
        "of": of,
        "shadows": shadows,
        "data": data,
        "conditions": conditions(device),
    }
    write_json(out, content)
    rare = "too few others" if attack.at_01 is None else f"{attack.at_01:.1%}"
    screen.table(
        f"LiRA with {shadows} shadow models on {attack.members} members and {attack.others} others",
        ("attacked", "AUC", "right", "found at 1%", "found at 0.1%"),
        [(of, f"{attack.auc:.3f}", f"{attack.success:.1%}", f"{attack.at_1:.1%}", rare)],
    )
    screen.result(content)
