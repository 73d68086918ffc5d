"""sensorveil donors: tables I and II of the CSI paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sensorveil.cli import options as given
from sensorveil.cli.making import Preset, Quick, Result, Set, check_out, classifier, groups, maker
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown

if TYPE_CHECKING:
    from sensorveil.audit.donors import Contender, DonorStudy
    from sensorveil.methods.base import Obfuscator

ROWS = ("raw", "plain", "hybrid", "hybrid-dp", "dp", "csi-vae")
FIGURES = {"auc": "attack AUC", "success": "ASR", "at_1": "TPR at 1%", "ssim": "SSIM", "fid": "FID"}


def donors(
    out: Result,
    public: Annotated[
        str, typer.Option(help="People who are public, with '+' between them, for hybrid-dp.")
    ] = "",
    data: given.Data = "simulated-csi",
    source: given.Source = None,
    option: given.Options = None,
    keep: Annotated[
        str, typer.Option("--keep", help="What windows are generated of.")
    ] = "activity",
    hide: Annotated[str, typer.Option("--hide", help="What is hidden.")] = "subject",
    row: Annotated[
        list[str] | None, typer.Option("--row", help=f"Some of: {', '.join(ROWS)}. Default: all.")
    ] = None,
    repair: Annotated[
        list[str] | None,
        typer.Option("--lambda", help="Lambdas of further hybrid rows, figures 4 and 5."),
    ] = None,
    preset: Preset = "fast",
    setting: Set = None,
    features: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file for FID's network: read if there, else written."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    quick: Quick = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Tables I and II of the CSI paper: what generated windows give away, and how good they are."""
    from sensorveil.audit.donors import donor_study
    from sensorveil.conditions import conditions
    from sensorveil.data.catalog import load_whole
    from sensorveil.files import write_json
    from sensorveil.measures.inference import InferenceSettings
    from sensorveil.measures.likeness import Likeness
    from sensorveil.measures.residual import ResidualModel

    screen = Screen(quiet, as_json)
    check_out(out, seeds)
    device = given.check_device(device)
    contenders = _contenders(given.names(row or list(ROWS)), public, preset, setting, device)
    for value in given.names(repair or []):
        weight = given.number(value, "lambda")
        made = maker("csi", preset, setting, device, mode="hybrid", repair=weight)
        contenders.append(_contender(f"hybrid, lambda {weight:g}", made))
    size = classifier(quick)
    windows, corpus, rules = load_whole(data, source, **given.data_options(option, data))
    likeness = Likeness(keep, InferenceSettings.quick() if quick else None, device=device)
    with screen.bars():
        if features and features.exists():
            likeness.load(features, windows)
        else:
            likeness.fit(windows)
        study = donor_study(
            contenders,
            windows,
            [name for name in public.split("+") if name],
            keep,
            hide,
            classify=lambda some, seed: ResidualModel(size, seed, device).fit(some, keep),
            likeness=likeness,
            seeds=seeds,
            groups=groups(windows, corpus, rules),
        )
    content = {**study.as_dict(), "data": data, "preset": preset, "conditions": conditions(device)}
    write_json(out, content)
    if features and not features.exists():
        likeness.save(features)
    _print(screen, study, data)
    screen.result(content)


def _contenders(
    rows: list[str], public: str, preset: str, setting: list[str] | None, device: str
) -> list[Contender]:
    found = []
    for name in rows:
        if name not in ROWS:
            raise refuse_unknown("row", name, ROWS)
        if name == "raw":
            found.append(_contender(name, None))
        elif name == "csi-vae":
            found.append(_contender(name, maker(name, _vae_preset(preset), None, device)))
        elif name == "hybrid-dp":
            if not public:
                raise Refusal("row hybrid-dp needs --public, or leave it out with --row")
            made = maker("csi", preset, setting, device, mode=name, public=public)
            found.append(_contender(name, made, learns_from_public=True))
        else:
            found.append(_contender(name, maker("csi", preset, setting, device, mode=name)))
    return found


def _contender(
    name: str, make: Callable[[int], Obfuscator] | None, learns_from_public: bool = False
) -> Contender:
    from sensorveil.audit.donors import Contender

    return Contender(name, make, learns_from_public)


def _vae_preset(preset: str) -> str:
    return "fast" if preset == "fast" else "paper"


def _print(screen: Screen, study: DonorStudy, data: str) -> None:
    """The table, with the paper's figures in brackets where it has them."""
    from sensorveil.audit.donors import PAPER

    rows = []
    for name in study.contenders():
        cells = []
        for figure in FIGURES:
            mean, spread = study.mean(name, figure)
            printed = PAPER.get(name, {}).get(figure)
            beside = f" [{printed:g}]" if printed else ""
            cells.append(
                f"{mean:.2f}" + (f" ± {spread:.2f}" if spread is not None else "") + beside
            )
        rows.append((name, *cells))
    screen.table(
        f"{study.keep} of {data}; [in brackets] the paper's, on Widar3.0: other data",
        ("windows", *FIGURES.values()),
        rows,
    )
    for figure, held in study.orders().items():
        screen.say(
            f"The paper's order of {FIGURES[figure]} {'holds' if held else 'does not hold'}."
        )
