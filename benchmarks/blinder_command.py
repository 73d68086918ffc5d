"""The command that runs the experiments of Blinder's section 7."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.run import commit
from benchmarks.tables import print_points
from sensorveil.cli import options as given
from sensorveil.cli.federated import (
    Federation,
    Hide,
    Keep,
    Source,
    Split,
    federation_config,
    untrained_start,
)
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal
from sensorveil.files import check_place


def experiment(
    name: Annotated[str, typer.Argument(help="'list' names all; several with commas.")],
    keep: Keep = None,
    hide: Hide = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The .json file to write; of several, a folder.")
    ] = None,
    data: given.Data = "watch",
    source: Source = None,
    option: given.Options = None,
    split: Split = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    preset: given.Preset = "fast",
    setting: given.Set = None,
    federation: Federation = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", help="Federation settings of FedBlinder's own, as above."),
    ] = None,
    quick: Annotated[bool, given.Rare("--quick", help="Smaller fixed classifiers.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was cut off.")] = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Experiments of Blinder's section 7, over all people in this process.

    The result is written after every point. With --resume, what it holds is not measured again;
    there may be more seeds than before.
    """
    import sensorveil
    from benchmarks.blinder import EXPERIMENTS, Setting
    from sensorveil.classifiers import ClassifierSettings
    from sensorveil.methods.policy import Policy

    screen = Screen(quiet, as_json)
    if name == "list":
        rows = [(known, (made.__doc__ or "").strip()) for known, made in EXPERIMENTS.items()]
        screen.table("Experiments", ("name", "what"), rows)
        screen.result(list(EXPERIMENTS))
        return
    names = list(dict.fromkeys(given.names([name])))  # one that is named twice is measured once
    for one in names or [name]:
        given.check_among("experiment", one, list(EXPERIMENTS))
    place = _result_place(out, resume, several=len(names) > 1)
    if seeds < 1:
        raise Refusal(f"--seeds is {seeds}; at least one is needed")
    policy = Policy.of(given.names(keep), given.names(hide))
    blank = untrained_start(preset, setting, 0, device)
    shared = Setting(
        split=sensorveil.load(data, split, 0, source, **given.data_options(option, data)),
        keep=policy.keep,
        hide=policy.hide,
        config=federation_config(federation, False, 0),
        start=lambda seed: untrained_start(preset, setting, seed, device),
        seeds=range(seeds),
        inference=ClassifierSettings.quick() if quick else ClassifierSettings(),
        baseline=given.pairs(baseline, "federation setting"),
    )
    shared.fedblinder()  # refuses what is wrong before anything is trained
    head = {
        "format": 1,
        "kind": "federated experiment",
        "keep": list(policy.keep),
        "hide": list(policy.hide),
        "preset": preset,
        "settings": blank.about(),
        "plan": shared.config.flat(),
        "baseline": dict(shared.baseline),
        "seeds": list(shared.seeds),
        "inference": asdict(shared.inference or ClassifierSettings()),
    }
    if len(names) == 1:
        screen.result(_measure(names[0], place, shared, head, data, device, screen))
        return
    place.mkdir(parents=True, exist_ok=True)
    screen.result(
        [_measure(one, place / f"{one}.json", shared, head, data, device, screen) for one in names]
    )


def _measure(
    name: str, file: Path, shared: Any, head: dict[str, Any], data: str, device: str, screen: Screen
) -> dict[str, Any]:
    """One experiment, written after every point."""
    from benchmarks.blinder import paper_figures, run_experiment, split_for
    from sensorveil.conditions import conditions
    from sensorveil.files import write_json

    origin = split_for(name, shared.split).test.origin
    paper = paper_figures(name, origin.dataset if origin else data, shared.hide)
    own = {**head, "data": asdict(origin) if origin else {}, "paper": paper}
    known = _cut_off(file, name, own) if file.exists() else None

    def on_point(found: dict[str, Any]) -> None:
        earlier = {"earlier": known["earlier"]} if known else {}
        write_json(
            file,
            {**own, **found, **earlier, "conditions": {**conditions(device), "commit": commit()}},
        )

    with screen.bars():
        found = run_experiment(name, shared, on_point, known)
    print_points(screen, found)
    return {**own, **found}


def _result_place(out: Path | None, resume: bool, several: bool) -> Path:
    """Where the result goes: a file, or of several experiments a folder."""
    if out is None:
        raise Refusal("name the result's file with --out")
    if out.exists() and not resume:
        raise Refusal(f"{out} exists already; go on with --resume, or choose another place")
    if out.exists() and out.is_dir() != several:
        wanted = "several experiments go to a folder" if several else "one goes to a file"
        raise Refusal(f"{out} is a {'folder' if out.is_dir() else 'file'}; {wanted}")
    check_place(out)
    return out


def _cut_off(place: Path, name: str, own: dict[str, Any]) -> dict[str, Any]:
    """What a file holds of the same experiment with the same settings, and maybe fewer seeds."""
    from sensorveil.files import read_json

    there = read_json(place)
    if not isinstance(there, dict) or there.get("kind") != own["kind"]:
        raise Refusal(f"{place} is no result of an experiment; choose another place for --out")
    wanted = json.loads(json.dumps({**own, "experiment": name}))
    wanted["seeds"] = wanted["seeds"][: len(there.get("seeds", []))]
    other = [key for key, value in wanted.items() if there.get(key) != value]
    if other:
        raise Refusal(
            f"{place} cannot be gone on with, since it has other {', '.join(other)}; give what it"
            " was made with, or choose another place for --out"
        )
    # Points of one file can be of several commands and machines: all of them are named.
    earlier = [*there.get("earlier", []), there["conditions"]]
    return {"points": there["points"], "raw": there["raw"], "earlier": earlier}
