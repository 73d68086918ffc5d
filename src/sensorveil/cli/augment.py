"""sensorveil augment: figures 2 and 3 of the CSI paper."""

from __future__ import annotations

from typing import Annotated

import typer

from sensorveil.cli import options as given
from sensorveil.cli.making import Preset, Quick, Result, Set, check_out, classifier, maker
from sensorveil.cli.screen import Screen


def augment(
    method: Annotated[str, typer.Argument(help="csi, csi-vae, or any other method.")],
    out: Result,
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
    check_out(out, seeds)
    device = given.check_device(device)
    make, size = maker(method, preset, setting, device), classifier(quick)
    options = given.data_options(option, data)
    splits = [sensorveil.load(data, protocol, fold, source, **options) for fold in range(folds)]
    with screen.bars():
        found = augmentation(
            make,
            splits,
            keep,
            hide,
            train=lambda some, seed: ResidualModel(size, seed, device).fit(some, keep),
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
