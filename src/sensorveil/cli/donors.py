"""sensorveil csi donors: tables I and II of the CSI paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.making import (
    FirstSeed,
    Join,
    Phases,
    Preset,
    Quick,
    Result,
    Set,
    check_out,
    classifier,
    maker,
    read_parts,
)
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown

if TYPE_CHECKING:
    from sensorveil.audit.donor_figures import DonorStudy
    from sensorveil.audit.donors import Contender
    from sensorveil.data.windows import Windows
    from sensorveil.measures.likeness import Likeness

ROWS = ("raw", "plain", "hybrid", "hybrid-dp", "dp", "csi-vae")
TABLES = {
    "by the shadow attack": {
        "auc": "attack AUC",
        "success": "ASR",
        "at_1": "TPR at 1%",
        "ssim": "SSIM",
        "fid": "FID",
    },
    "by LiRA": {
        "lira_classifier_auc": "AUC, classifier",
        "lira_classifier_at_1": "TPR at 1%",
        "lira_generator_auc": "AUC, generator",
        "lira_generator_at_1": "TPR at 1%",
    },
}
"""What is printed of the figures, each with its title."""


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
    phases: Phases = "kept",
    row: Annotated[
        list[str] | None, typer.Option("--row", help=f"Some of: {', '.join(ROWS)}. Default: all.")
    ] = None,
    repair: Annotated[
        list[str] | None,
        typer.Option("--lambda", help="Lambdas of further hybrid rows, figures 4 and 5."),
    ] = None,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="Give out true windows, degraded and restored (line 16)."),
    ] = False,
    preset: Preset = "fast",
    setting: Set = None,
    features: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file for FID's network: read if there, else written."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds; 0 with --lira for LiRA alone.")] = 3,
    first_seed: FirstSeed = 0,
    lira: Annotated[int, typer.Option(help="How many models attack each other by LiRA.")] = 0,
    join: Join = None,
    quick: Quick = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Tables I and II of the CSI paper: what generated windows give away, and how good they are."""
    from sensorveil.audit.donors import donor_study
    from sensorveil.audit.lira import check_models
    from sensorveil.conditions import conditions
    from sensorveil.data.catalog import load_whole
    from sensorveil.data.phases import with_phases
    from sensorveil.data.splits import units
    from sensorveil.files import write_json
    from sensorveil.measures.residual import ResidualModel

    screen = Screen(quiet, as_json)
    if join:
        return _joined(screen, join, out)
    check_out(out, max(seeds, min(lira, 1)), first_seed)
    if lira:
        check_models(lira)
    device = given.check_device(device)
    contenders = _contenders(
        given.names(row or list(ROWS)),
        given.names(repair or []),
        public,
        restored,
        lambda name, **more: maker(name, preset, setting, device, **more),
        maker("csi-vae", _vae_preset(preset), None, device),
    )
    size = classifier(quick)
    options = given.data_options(option, data)
    windows, corpus, rules = load_whole(data, source, **options)
    windows = with_phases(windows, phases)
    asked = {
        "data": data,
        "options": options,
        "phases": phases,
        "public": public,
        "restored": restored,
        "preset": preset,
        "settings": sorted(given.names(setting or [])),
        "quick": quick,
    }

    def content(study: DonorStudy) -> dict[str, Any]:
        return {"study": asked, **study.as_dict(), "conditions": conditions(device)}

    with screen.bars():
        study = donor_study(
            contenders,
            windows,
            [name for name in public.split("+") if name],
            keep,
            hide,
            classify=lambda some, seed: ResidualModel(size, seed, device).fit(some, keep),
            likeness=_likeness(windows, keep, features, quick, device),
            seeds=range(first_seed, first_seed + seeds),
            models=lira,
            groups=units(windows, corpus, rules.rule(None)[1]),
            after=lambda study: write_json(out, content(study)),
        )
    print_study(screen, study, data)
    screen.result(content(study))


def _likeness(
    windows: Windows, keep: str, features: Path | None, quick: bool, device: str
) -> Likeness:
    """What scores SSIM and FID: read from the file if it is there, else learnt and kept in it."""
    from sensorveil.measures.inference import ClassifierSettings
    from sensorveil.measures.likeness import Likeness

    likeness = Likeness(keep, ClassifierSettings.quick() if quick else None, device=device)
    if features and features.exists():
        return likeness.load(features, windows)
    likeness.fit(windows)
    if features:
        likeness.save(features)
    return likeness


def _joined(screen: Screen, parts: list[Path], out: Path) -> None:
    """Writes and prints one table of results that were made in parts."""
    from sensorveil.audit.donor_figures import DonorStudy
    from sensorveil.conditions import conditions
    from sensorveil.files import write_json

    given.check_file(out, ".json")
    read = read_parts(parts, "study")
    study = DonorStudy.joined([DonorStudy.of(part) for part in read])
    content = {
        "study": read[0]["study"],
        **study.as_dict(),
        "conditions": conditions(),
        "parts": [part["conditions"] for part in read],
    }
    write_json(out, content)
    print_study(screen, study, read[0]["study"]["data"])
    screen.result(content)


def _contenders(
    rows: list[str],
    lambdas: list[str],
    public: str,
    restored: bool,
    make: Callable[..., Any],
    vae: Callable[..., Any],
) -> list[Contender]:
    from sensorveil.audit.donors import Contender

    found = []
    for name in rows:
        if name not in ROWS:
            raise refuse_unknown("row", name, ROWS)
        if name == "raw":
            found.append(Contender(name, None))
        elif name == "csi-vae":
            found.append(Contender(name, vae))
        elif name == "hybrid-dp":
            if not public:
                raise Refusal("row hybrid-dp needs --public, or leave it out with --row")
            made = make("csi", mode=name, public=public)
            found.append(Contender(name, made, learns_from_public=True, restores=restored))
        else:
            found.append(Contender(name, make("csi", mode=name), restores=restored))
    for value in lambdas:
        weight = given.number(value, "lambda")
        made = make("csi", mode="hybrid", repair=weight)
        found.append(Contender(f"hybrid, lambda {weight:g}", made, restores=restored))
    return found


def _vae_preset(preset: str) -> str:
    return "fast" if preset == "fast" else "paper"


def print_study(screen: Screen, study: DonorStudy, data: str) -> None:
    """The tables, with the paper's figures in brackets where it has them."""
    for attack, figures in TABLES.items():
        rows = [
            (name, *(_cell(study, name, figure) for figure in figures))
            for name in study.contenders()
            if any(study.mean(name, figure) for figure in figures)
        ]
        title = (
            f"{study.keep} of {data}, {attack}; [in brackets] the paper's, on Widar3.0: other data"
        )
        if rows:
            screen.table(title, ("windows", *figures.values()), rows)
    for figure, held in study.orders().items():
        told = TABLES["by the shadow attack"][figure]
        screen.say(f"The paper's order of {told} {'holds' if held else 'does not hold'}.")
        for step in study.steps(figure):
            error = "" if step.error is None else f" (standard error {step.error:.3f})"
            screen.say(f"  {step.above} less {step.below}: {step.difference:+.3f}{error}")


def _cell(study: DonorStudy, contender: str, figure: str) -> str:
    from sensorveil.audit.donor_figures import PAPER

    found = study.mean(contender, figure)
    if found is None:
        return "-"
    mean, spread = found
    printed = PAPER.get(contender, {}).get(figure)
    beside = f" [{printed:g}]" if printed else ""
    return f"{mean:.2f}" + (f" ± {spread:.2f}" if spread is not None else "") + beside
