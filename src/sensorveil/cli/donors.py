"""sensorveil donors, members and augment: the CSI paper's experiments, and LiRA beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

if TYPE_CHECKING:
    from sensorveil.audit.donors import Contender, DonorStudy
    from sensorveil.data.corpus import Corpus
    from sensorveil.data.protocol import Protocol
    from sensorveil.data.windows import Windows
    from sensorveil.measures.residual import ResidualSettings
    from sensorveil.methods.base import Obfuscator

ROWS = ("raw", "plain", "hybrid", "hybrid-dp", "dp", "csi-vae")
FIGURES = {"auc": "attack AUC", "success": "ASR", "at_1": "TPR at 1%", "ssim": "SSIM", "fid": "FID"}

Set = Annotated[list[str] | None, typer.Option("--set", help="A setting of csi, as name=value.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small classifiers, for two cores.")]
Preset = Annotated[str, typer.Option(help="fast, paper or sound.")]


def donors(
    out: Annotated[Path, typer.Option("--out", help="A .json file for the result.")],
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
    _check_out(out, seeds)
    device = given.check_device(device)
    contenders = _contenders(given.names(row or list(ROWS)), public, preset, setting, device)
    for value in given.names(repair or []):
        weight = given.number(value, "lambda")
        made = _maker("csi", preset, setting, device, mode="hybrid", repair=weight)
        contenders.append(_contender(f"hybrid, lambda {weight:g}", made))
    classifier = _classifier(quick)
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
            classify=lambda some, seed: ResidualModel(classifier, seed, device).fit(some, keep),
            likeness=likeness,
            seeds=seeds,
            groups=_groups(windows, corpus, rules),
        )
    content = {**study.as_dict(), "data": data, "preset": preset, "conditions": conditions(device)}
    write_json(out, content)
    if features and not features.exists():
        likeness.save(features)
    _print(screen, study, data)
    screen.result(content)


def members(
    method: Annotated[str, typer.Argument(help="csi, csi-vae, or any other method.")],
    out: Annotated[Path, typer.Option("--out", help="A .json file for the result.")],
    of: Annotated[
        str, typer.Option(help="classifier, trained on what was made, or the generator itself.")
    ] = "classifier",
    shadows: Annotated[int, typer.Option(help="How many shadow models.")] = 16,
    data: given.Data = "simulated-csi",
    source: given.Source = None,
    option: given.Options = None,
    keep: Annotated[str, typer.Option("--keep", help="What windows are made of.")] = "activity",
    hide: Annotated[str, typer.Option("--hide", help="What the method hides.")] = "subject",
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
    from sensorveil.files import write_json
    from sensorveil.measures.residual import ResidualModel
    from sensorveil.methods.generator import ClassGenerator

    screen = Screen(quiet, as_json)
    _check_out(out, seeds=1)
    device = given.check_device(device)
    if of not in ("classifier", "generator"):
        raise refuse_unknown("attack of", of, ["classifier", "generator"])
    make, classifier = _maker(method, preset, setting, device), _classifier(quick)
    if of == "generator" and not isinstance(make(seed), ClassGenerator):
        raise Refusal(f"{method} is no generator that could be asked; use --of classifier")
    windows, corpus, rules = load_whole(data, source, **given.data_options(option, data))
    groups = _groups(windows, corpus, rules)
    with screen.bars():
        if of == "generator":
            attack = lira(
                lambda some, seed: make(seed).fit(some, keep, hide),
                memory,
                windows,
                shadows,
                seed,
                groups,
            )
        else:
            release = Release(
                Contender(method, make),
                windows,
                np.zeros(len(windows), bool),
                keep,
                hide,
                lambda some, seed: ResidualModel(classifier, seed, device).fit(some, keep),
            )
            attack = lira(release.train, confidence(keep), windows, shadows, seed, groups)
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


def augment(
    method: Annotated[str, typer.Argument(help="csi, csi-vae, or any other method.")],
    out: Annotated[Path, typer.Option("--out", help="A .json file for the result.")],
    data: given.Data = "simulated-csi",
    source: given.Source = None,
    option: given.Options = None,
    keep: Annotated[str, typer.Option("--keep", help="The attribute that is read.")] = "activity",
    hide: Annotated[str, typer.Option("--hide", help="What the method hides.")] = "subject",
    protocol: given.Protocol = None,
    folds: Annotated[int, typer.Option(help="Folds of people, with --protocol subject.")] = 1,
    preset: Preset = "fast",
    setting: Set = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    quick: Quick = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Figures 2 and 3 of the CSI paper: accuracy with generated windows beside real ones, 1:1."""
    import sensorveil
    from sensorveil.audit.augmentation import augmentation
    from sensorveil.conditions import conditions
    from sensorveil.files import write_json
    from sensorveil.measures.residual import ResidualModel

    screen = Screen(quiet, as_json)
    _check_out(out, seeds)
    device = given.check_device(device)
    make, classifier = _maker(method, preset, setting, device), _classifier(quick)
    options = given.data_options(option, data)
    splits = [sensorveil.load(data, protocol, fold, source, **options) for fold in range(folds)]
    with screen.bars():
        found = augmentation(
            make,
            splits,
            keep,
            hide,
            train=lambda some, seed: ResidualModel(classifier, seed, device).fit(some, keep),
            seeds=seeds,
        )
    origin = splits[0].train.origin
    content = {
        **found.as_dict(),
        "method": method,
        "data": data,
        "split": origin.split if origin else None,
        "conditions": conditions(device),
    }
    write_json(out, content)
    screen.table(
        f"{keep} of {data}, accuracy over {found.real.people} people, seeds: {seeds}",
        ("trained on", "accuracy"),
        [
            ("real windows", str(found.real)),
            ("and as many generated ones", str(found.mixed)),
            ("gain", str(found.gain)),
        ],
    )
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
            found.append(_contender(name, _maker(name, _vae_preset(preset), None, device)))
        elif name == "hybrid-dp":
            if not public:
                raise Refusal("row hybrid-dp needs --public, or leave it out with --row")
            made = _maker("csi", preset, setting, device, mode=name, public=public)
            found.append(_contender(name, made, learns_from_public=True))
        else:
            found.append(_contender(name, _maker("csi", preset, setting, device, mode=name)))
    return found


def _contender(
    name: str, make: Callable[[int], Obfuscator] | None, learns_from_public: bool = False
) -> Contender:
    from sensorveil.audit.donors import Contender

    return Contender(name, make, learns_from_public)


def _groups(windows: Windows, corpus: Corpus, rules: Protocol) -> np.ndarray:
    """The recording of each window, or what its protocol keeps together beyond that."""
    together = rules.rule(None)[1].together
    if not together:
        return windows.recording
    shared: np.ndarray = np.unique(corpus.facts[together], return_inverse=True)[1]
    return shared[windows.recording]


def _maker(
    method: str, preset: str, setting: list[str] | None, device: str, **more: Any
) -> Callable[[int], Obfuscator]:
    """Makes the method for a seed; settings are checked at once."""
    from sensorveil.methods.registry import method as find

    made = find(method)
    settings = {**given.settings(setting, made.Settings, method), **more}
    made(preset, 0, device, **settings)
    return lambda seed: made(preset, seed, device, **settings)


def _vae_preset(preset: str) -> str:
    return "fast" if preset == "fast" else "paper"


def _classifier(quick: bool) -> ResidualSettings:
    from sensorveil.measures.residual import ResidualSettings

    return ResidualSettings.quick() if quick else ResidualSettings()


def _check_out(out: Path, seeds: int) -> None:
    if seeds < 1:
        raise Refusal(f"--seeds is {seeds}; at least one is needed")
    if out.suffix != ".json":
        raise Refusal(f"the output {out} must end in .json")
    check_place(out)


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
