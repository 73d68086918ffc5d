"""sensorveil federated: simulate, app, personalise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    from sensorveil.federated.config import FederationConfig
    from sensorveil.federated.server import ServerState
    from sensorveil.methods.blinder import Blinder

app = typer.Typer(help="Trains Blinder where the data stays: every person is a client.")

ENGINES = ("flower", "process")

Keep = Annotated[list[str] | None, typer.Option("--keep", help="Attributes that are needed.")]
Hide = Annotated[list[str] | None, typer.Option("--hide", help="Attributes to hide.")]
Source = Annotated[
    Path | None, given.Rare("--from", help="Where the dataset's files are, if not in its place.")
]
Split = Annotated[str | None, given.Rare("--split", help="The split: paper, recording or subject.")]
Federation = Annotated[
    list[str] | None,
    typer.Option(
        "--federation", help="A setting of the federation, as rounds=150; may be repeated."
    ),
]
FedBlinder = Annotated[
    bool, typer.Option("--fedblinder", help="The baseline: FedAvg, no adaptation, no balancing.")
]


@app.command(cls=given.Command)
def simulate(
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")],
    keep: Keep = None,
    hide: Hide = None,
    data: given.Data = "watch",
    source: Source = None,
    option: given.Options = None,
    split: Split = None,
    fold: given.Fold = 0,
    subset: Annotated[
        str, given.Rare("--subset", help="train, or fitting to leave validation out.")
    ] = "train",
    start: Annotated[
        Path | None, given.Rare("--start", help="A run to start from; default: one is fitted.")
    ] = None,
    preset: given.Preset = "fast",
    setting: given.Set = None,
    federation: Federation = None,
    fedblinder: FedBlinder = False,
    engine: Annotated[
        str, typer.Option("--engine", help="flower, or process: all in one, also on a GPU.")
    ] = "flower",
    workers: Annotated[int, given.Rare("--workers", help="Processes of the engine flower.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was stopped.")] = False,
    seed: given.Seed = 0,
    device: Annotated[str, given.Rare("--device", help="cpu or cuda.")] = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Trains over the people of a dataset, each of them a client, on this machine.

    Scaling and classifiers come from the run that it starts from; without --start one is fitted to
    the same windows. The state is written after every round, and --resume goes on with it.
    """
    import sensorveil
    from sensorveil.federated.dataset import DataSource, load_start
    from sensorveil.federated.server import federation_checkpoint
    from sensorveil.federated.simulation import federate
    from sensorveil.federated.simulation import simulate as simulate_flower

    screen = Screen(quiet, as_json)
    config = federation_config(federation, fedblinder, seed)
    given.check_among("engine", engine, ENGINES)
    if engine == "flower":
        _check_flower()
        if device != "cpu":
            raise Refusal("the engine flower uses the CPU; take --engine process for a GPU")
    given.check_new(out)
    options = tuple(given.data_options(option, data).items())
    people = DataSource(data, split, fold, str(source) if source else None, options, subset)
    blank = untrained_start(preset, setting, seed, device)
    started = start or out.with_name(f"{out.name}.start")
    if start and (keep or hide or setting):
        raise Refusal("--keep, --hide and --set are those of the run given with --start")
    if not (start or resume) and started.exists():
        raise Refusal(f"{started} was left by a federation; go on with --resume, or remove it")
    with screen.bars():
        if not started.exists():
            blank.fit(people.windows(), given.names(keep), given.names(hide))
            sensorveil.save_run(blank, started)
        first = load_start(started, device)
        unfinished = out.with_name(f"{out.name}.unfinished")
        checkpoint = federation_checkpoint(unfinished, first, config, resume)
        on_round = _reporting(screen, config)
        if engine == "process":
            trained = federate(first, people.windows(), config, checkpoint, on_round)
        else:
            trained = simulate_flower(started, people, config, workers, checkpoint, on_round)
    sensorveil.save_run(trained, out)
    checkpoint.remove()
    if start is None:
        shutil.rmtree(started)
    summary: dict[str, Any] = trained.metrics_["federation"]
    megabytes = summary["bytes"] / 1e6
    screen.say(f"{summary['rounds']} rounds, {megabytes:.1f} MB to and from clients: {out}")
    screen.result({"run": str(out), "federation": summary})


@app.command("app", cls=given.Command)
def write_flower_app(
    folder: Annotated[Path, typer.Argument(help="The folder to write, for 'flwr run'.")],
    start: Annotated[Path, typer.Option("--start", help="The run to start from, on the server.")],
    out: Annotated[Path, typer.Option("--out", help="The run to write, on the server.")],
    clients: Annotated[int, typer.Option(help="How many clients to wait for.")],
    federation: Federation = None,
    fedblinder: FedBlinder = False,
    seed: given.Seed = 0,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Writes the Flower app of a federation of real devices; docs/federated.md shows the rest."""
    _check_flower()
    from sensorveil.federated.dataset import load_start
    from sensorveil.federated.strategy import write_app

    screen = Screen(quiet, as_json)
    if clients < 1:
        raise Refusal(f"--clients is {clients}; at least one is needed")
    load_start(start)
    write_app(folder, start, out, clients, federation_config(federation, fedblinder, seed))
    screen.say(f"Send it to the SuperLink with: flwr run {folder}")
    screen.result({"app": str(folder)})


@app.command(cls=given.Command)
def personalise(
    run: Annotated[Path, typer.Argument(help="A run of blinder.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")],
    data: given.Data,
    person: Annotated[str, typer.Option(help="The subject whose windows to adapt to.")],
    source: given.Source = None,
    option: given.Options = None,
    share: Annotated[float, typer.Option(help="Less than this share of the windows.")] = 0.05,
    steps: Annotated[int, typer.Option(help="Local steps.")] = 80,
    learning_rate: Annotated[float, typer.Option(help="Of the local steps.")] = 1e-4,
    seed: given.Seed = 0,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Adapts a run to one new person, with a little of that person's own data."""
    import sensorveil
    from sensorveil.federated.dataset import DataSource, load_start
    from sensorveil.federated.personalise import adaptation_set
    from sensorveil.federated.personalise import personalise as adapt_to

    screen = Screen(quiet, as_json)
    given.check_new(out)
    if not (0 < share <= 1 and steps > 0 and learning_rate > 0):
        raise Refusal("--share must be above 0 and at most 1, --steps and --learning-rate above 0")
    first = load_start(run)
    options = tuple(given.data_options(option, data).items())
    own = DataSource(data, None, 0, str(source) if source else None, options, "all").person(person)
    try:
        few = adaptation_set(own, share, seed)
        with screen.bars():
            adapted = adapt_to(first, few, steps, learning_rate, seed)
    except Refusal as refusal:
        raise Refusal(f"person {person} of {data}: {refusal}") from None
    sensorveil.save_run(adapted, out)
    screen.say(f"Adapted to {person} by {steps} steps on {len(few)} of {len(own)} windows: {out}")
    screen.result({"run": str(out), **adapted.metrics_["personalised"]})


def federation_config(values: list[str] | None, fedblinder: bool, seed: int) -> FederationConfig:
    """The configuration that is asked for, Blinder's or FedBlinder's."""
    from sensorveil.federated.config import FederationConfig

    own = given.pairs(values, "federation setting")
    config = FederationConfig(seed=seed)
    return config.fedblinder(own) if fedblinder else config.with_values(own)


def untrained_start(preset: str, setting: list[str] | None, seed: int, device: str) -> Blinder:
    """A Blinder whose networks `fit` leaves untrained."""
    import sensorveil

    settings = given.settings(setting, sensorveil.Blinder.Settings, "blinder")
    for name in settings:
        if name.startswith("training."):
            raise Refusal(f"setting '{name}' is of central training; see --federation")
    given.check_device(device)
    return sensorveil.Blinder(preset, seed, device, **settings, **{"training.epochs": 0})


def _check_flower() -> None:
    if find_spec("flwr") is None:
        raise Refusal(
            "this needs Flower: pip install 'sensorveil[federated]', or take --engine process"
        )


def _reporting(screen: Screen, config: FederationConfig) -> Callable[[ServerState], None]:
    """Says what a round of a private federation has cost, and who was refused."""
    from sensorveil.federated.privacy import epsilon
    from sensorveil.federated.server import REASONS

    def on_round(state: ServerState) -> None:
        now, number = state.rounds[-1], len(state.rounds)
        if config.is_private:
            screen.say(
                f"round {number}: epsilon {epsilon(config, number):.3f} at delta"
                f" {config.privacy.delta:g}, for all data of one person"
            )
        for number, client, reason in state.refusals[len(state.refusals) - now.refused :]:
            screen.say(f"round {number}: client {client} refused, {REASONS[reason]}")

    return on_round
