"""sensorveil methods, fit, extend, obfuscate, evaluate: from data to a run and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    from sensorveil.audit.evaluation import Evaluation
    from sensorveil.data.splits import Split
    from sensorveil.methods.base import Obfuscator


def methods(
    name: Annotated[
        str, typer.Argument(help="One method, with its presets, settings and strengths.")
    ] = "",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """All methods, one on a line; or one method with its presets, settings and strengths."""
    from sensorveil.methods.registry import list_methods, method

    screen = Screen(quiet, as_json)
    shown = {one: method(one) for one in ((name,) if name else list_methods())}
    widest = max(len(one) for one in shown)
    for one, made in shown.items():
        screen.say(f"{one:<{widest}}  {made.summary}")
    if name:
        made = shown[name]
        screen.say(f"presets: {', '.join(made.presets)}")
        entries = [(one, str(value)) for one, value in made().settings.flat().items()]
        screen.table("Settings of the preset fast", ("setting", "value"), entries)
        for one, meaning in made.capabilities.strengths.items():
            screen.say(f"strength {one}: {meaning}")
        if made.capabilities.strength_per_hidden:
            screen.say("The name of each hidden attribute is a strength too.")
    else:
        screen.say("'sensorveil methods NAME' shows presets, settings and strengths of one.")
    screen.result(
        {
            one: {
                "summary": made.summary,
                "presets": {key: dict(value) for key, value in made.presets.items()},
                "settings": made.Settings().as_dict(),
                "capabilities": asdict(made.capabilities),
            }
            for one, made in shown.items()
        }
    )


def fit(
    method: Annotated[
        str, typer.Argument(help="A method's name; 'sensorveil methods' lists them.")
    ],
    keep: Annotated[
        list[str], typer.Option("--keep", help="The attributes that the application needs.")
    ],
    hide: Annotated[list[str], typer.Option("--hide", help="The attributes to hide.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")],
    data: given.Data = "watch",
    source: given.Source = None,
    option: given.Options = None,
    split: given.Protocol = None,
    fold: given.Fold = 0,
    subset: Annotated[
        str, given.Rare(help="train, or fitting to leave the validation windows out.")
    ] = "train",
    preset: given.Preset = "fast",
    setting: given.Set = None,
    max_advantage: Annotated[
        float | None,
        given.Rare(help="The largest advantage that a code may give an attacker (seal)."),
    ] = None,
    seed: given.Seed = 0,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Trains a method on a dataset's training windows and writes a run folder.

    The same command goes on with a training that was stopped (its state is in OUT.unfinished).
    """
    import zlib

    import sensorveil
    from sensorveil.methods.registry import method as find
    from sensorveil.train import Checkpoint

    screen = Screen(quiet, as_json)
    given.check_among("subset", subset, ("train", "fitting"))
    made = find(method)
    if max_advantage is not None:
        if not 0 < max_advantage <= 1:
            raise Refusal(
                f"--max-advantage is {max_advantage}; give a share above 0 and up to 1, such as 0.03"
            )
        setting = [*(setting or []), f"max_advantage={max_advantage}"]
    settings = given.settings(setting, made.Settings, method)
    obfuscator = made(preset, seed, given.check_device(device), **settings)
    given.check_new(out)
    parts = sensorveil.load(data, split, fold, source, **given.data_options(option, data))
    windows = parts.fitting if subset == "fitting" else parts.train
    purpose = {
        "method": method,
        "settings": obfuscator.about(),
        "seed": seed,
        "keep": given.names(keep),
        "hide": given.names(hide),
        "data": asdict(windows.origin) if windows.origin else None,
        "windows": len(windows),
        "samples": zlib.crc32(windows.store.tobytes()),
        "device": device,
    }
    checkpoint = Checkpoint(out.with_name(f"{out.name}.unfinished"), purpose)
    with screen.bars():
        obfuscator.fit(windows, given.names(keep), given.names(hide), checkpoint)
    sensorveil.save_run(obfuscator, out)
    checkpoint.remove()
    screen.say(
        f"{method} learnt from {len(windows)} windows in {obfuscator.metrics_['seconds']} s: {out}"
    )
    screen.result({"run": str(out), "method": method, "metrics": obfuscator.metrics_})


def extend(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    hide: Annotated[str, typer.Option("--hide", help="One more attribute to hide.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")],
    data: given.Data = "",
    source: given.Source = None,
    option: given.Options = None,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Hides one more attribute with a trained run; its generator is not trained again."""
    import sensorveil

    screen = Screen(quiet, as_json)
    given.check_new(out)
    obfuscator = sensorveil.load_run(run, given.check_device(device))
    split = split_of(obfuscator, run, data, source, option)
    with screen.bars():
        more = obfuscator.add_hidden(split.training_windows(obfuscator.origin_), hide)
    sensorveil.save_run(more, out)
    screen.say(f"{obfuscator.name} now hides {', '.join(more.policy_.hide)}: {out}")
    screen.result({"run": str(out), "hide": list(more.policy_.hide), "metrics": more.metrics_})


def obfuscate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option("--out", help="The .npz file to write.")],
    data: given.Data = "",
    source: given.Source = None,
    option: given.Options = None,
    split: given.Protocol = None,
    fold: Annotated[int | None, given.Rare("--fold", help="Default: the run's.")] = None,
    subset: Annotated[str, typer.Option(help="test, train, validation or all.")] = "test",
    strength: given.Strength = None,
    seed: given.NoiseSeed = None,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Writes a dataset's windows, obfuscated, to one .npz file."""
    import sensorveil
    from sensorveil.data.catalog import load_whole

    screen = Screen(quiet, as_json)
    given.check_file(out, ".npz")
    given.check_among("subset", subset, ("test", "train", "validation", "all"))
    obfuscator = sensorveil.load_run(run, given.check_device(device))
    if subset == "all":
        name = data or _origin_data(obfuscator, run)
        windows = load_whole(name, source, **given.data_options(option, name))[0]
    else:
        parts = split_of(obfuscator, run, data, source, option, split, fold)
        windows = getattr(parts, subset)
    with screen.bars():
        hidden = obfuscator.obfuscate(windows, given.numbers(strength, "strength"), seed)
    hidden.save(out)
    screen.say(f"{len(hidden)} windows of shape {hidden.shape}: {out}")
    if seed is not None:
        screen.say("The seed repeats the noise, which removes it: do not release both.")
    screen.result({"written": str(out), "windows": len(hidden), "shape": list(hidden.shape)})


def evaluate(
    run: Annotated[list[Path], typer.Argument(help="A run folder; several are folds to pool.")],
    data: given.Data = "",
    source: given.Source = None,
    option: given.Options = None,
    seeds: Annotated[int, typer.Option(help="How many seeds: models and noise anew each.")] = 1,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", help="Score only these; default: all.")
    ] = None,
    quick: given.Quick = False,
    strength: given.Strength = None,
    out: Annotated[Path | None, typer.Option("--out", help="A .json file for the result.")] = None,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """The papers' measures: what classifiers trained on raw data predict from the obfuscated test."""
    from sensorveil.audit.evaluation import evaluate as score
    from sensorveil.classifiers import ClassifierSettings
    from sensorveil.conditions import conditions
    from sensorveil.files import write_json

    screen = Screen(quiet, as_json)
    if seeds < 1:
        raise Refusal(f"--seeds is {seeds}; at least one is needed")
    if out:
        given.check_file(out, ".json")
    device = given.check_device(device)
    obfuscators, splits = load_parts(run, device, data, source, option)
    settings = ClassifierSettings.quick() if quick else ClassifierSettings()
    strengths = given.numbers(strength, "strength")
    with screen.bars():
        result = score(
            obfuscators,
            splits,
            seeds=range(seeds),
            attributes=given.names(attribute or []),
            settings=settings,
            strength=strengths,
            device=device,
        )
    content = {
        **result.as_dict(),
        "data": [asdict(obfuscator.origin_) for obfuscator in obfuscators if obfuscator.origin_],
        "runs": [
            {**obfuscator.made_with(), "made": obfuscator.made_} for obfuscator in obfuscators
        ],
        "inference": asdict(settings),
        "conditions": conditions(device),
    }
    if out:
        write_json(out, content)
    print_evaluation(screen, result)
    screen.result(content)


def print_evaluation(screen: Screen, result: Evaluation) -> None:
    """The table that evaluate prints."""
    rows = [
        (
            f"{score.attribute} ({score.role})",
            f"{100 * score.majority:.1f}",
            *(
                f"{100 * part.value:.1f} [{100 * part.low:.0f}-{100 * part.high:.0f}]"
                for part in (score.raw_accuracy, score.accuracy, score.f1)
            ),
            "" if score.role == "keep" else f"{100 * score.privacy_loss.value:.1f}",
        )
        for score in result.scores
    ]
    screen.table(
        f"{result.method}: accuracy of classifiers trained on raw data, in % [95% interval over people]",
        ("attribute", "majority", "raw", "obfuscated", "F1", "loss"),
        rows,
    )
    for name, reason in result.left_out.items():
        screen.say(f"{name} was not scored: {reason}.")
    left = _of_signal(result)
    if left:
        screen.say(f"Within recordings, correlations with the raw: {left}.")


def _of_signal(result: Evaluation) -> str:
    """What is left of each window: of the first seed, in the mean of folds; not of images."""
    said = []
    for name in ("frequency", "energy", "spectrum", "cadence"):
        values = [getattr(one, f"{name}_correlation") for one in result.signal]
        known = [value for value in values if value is not None]
        said += [f"{name} {fmean(known):.2f}"] if known else []
    return ", ".join(said)


def load_parts(
    runs: Sequence[Path], device: str, data: str, source: Path | None, option: list[str] | None
) -> tuple[list[Obfuscator], list[Split]]:
    """Runs, and for each the data that it is measured on."""
    import sensorveil

    obfuscators = [sensorveil.load_run(run, device) for run in runs]
    pairs = zip(obfuscators, runs, strict=True)
    return obfuscators, [split_of(made, run, data, source, option) for made, run in pairs]


def split_of(
    obfuscator: Obfuscator,
    run: Path,
    data: str,
    source: Path | None,
    option: list[str] | None,
    named: str | None = None,
    fold: int | None = None,
) -> Split:
    """The data that was asked for, by default that of the run, divided as the run's was."""
    import sensorveil

    origin, name = obfuscator.origin_, data or _origin_data(obfuscator, run)
    is_own = origin is not None and (name == origin.dataset or name.endswith(".toml"))
    if origin and is_own:
        named = named or origin.split
        fold = origin.fold if fold is None else fold
    split = sensorveil.load(name, named, fold or 0, source, **given.data_options(option, name))
    there = split.train.origin
    if origin and is_own and there and there.protocol != origin.protocol:
        raise Refusal(
            f"{run} was trained by protocol {origin.protocol} of {origin.dataset}, and the data"
            f" here is of {there.protocol}; give the same --data and --option as in fit"
        )
    return split


def _origin_data(obfuscator: Obfuscator, run: Path) -> str:
    """The dataset that a run was trained on."""
    from sensorveil.data.catalog import list_datasets

    if obfuscator.origin_ is None:
        raise Refusal(f"{run} does not say which data it was trained on; give --data")
    if obfuscator.origin_.dataset not in list_datasets():
        raise Refusal(
            f"{run} was trained on the table '{obfuscator.origin_.dataset}'; name its TOML with --data"
        )
    return obfuscator.origin_.dataset
