"""sensorveil federated simulate, app, experiment; sensorveil federated personalise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sensorveil.cli import options as given
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.files import check_place

if TYPE_CHECKING:
    from sensorveil.federated.keeping import Keeper
    from sensorveil.federated.plan import Plan
    from sensorveil.federated.server import State
    from sensorveil.federated.sources import Source
    from sensorveil.methods.blinder import Blinder

app = typer.Typer(help="Trains Blinder where the data stays: every person is a client.")

ENGINES = ("flower", "process")

PlanValues = Annotated[
    list[str] | None,
    typer.Option("--plan", help="A value of the plan, as rounds=150; may be repeated."),
]
Start = Annotated[
    Path | None,
    typer.Option("--start", help="A run of blinder to start from; default: one is prepared."),
]
FedBlinder = Annotated[
    bool, typer.Option("--fedblinder", help="The baseline: no adapting, nothing balanced, FedAvg.")
]


@app.command(cls=given.Command)
def simulate(
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")],
    keep: Annotated[list[str] | None, typer.Option("--keep", help="What is needed.")] = None,
    hide: Annotated[list[str] | None, typer.Option("--hide", help="What is to be hidden.")] = None,
    data: given.Data = "watch",
    source: given.Source = None,
    option: given.Options = None,
    protocol: given.Protocol = None,
    fold: given.Fold = 0,
    part: Annotated[str, typer.Option(help="train, or fitting to leave validation out.")] = "train",
    start: Start = None,
    preset: Annotated[str, typer.Option(help="paper or fast.")] = "fast",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of blinder, as name=value.")
    ] = None,
    plan: PlanValues = None,
    fedblinder: FedBlinder = False,
    engine: Annotated[
        str, typer.Option(help="flower, or process: all in one process, also on a GPU.")
    ] = "flower",
    workers: Annotated[int, typer.Option(help="Processes of the engine flower.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was stopped.")] = False,
    seed: given.Seed = 0,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Trains over the people of a dataset, each of them a client, on this machine.

    Scaling and readers come from the run that it starts from; without --start one is prepared from
    the same windows. The state lies beside the run until it is done, and --resume goes on with it.
    """
    import sensorveil
    from sensorveil.federated.in_process import federate
    from sensorveil.federated.keeping import Keeper
    from sensorveil.federated.sources import Source, start_run

    screen = Screen(quiet, as_json)
    chosen = _plan(plan, fedblinder, seed)
    if engine not in ENGINES:
        raise refuse_unknown("engine", engine, ENGINES)
    if engine == "flower":
        _check_flower()
        if device != "cpu":
            raise Refusal("the engine flower uses the CPU; take --engine process for a GPU")
    if out.exists():
        raise Refusal(f"{out} exists already; choose another place or remove it")
    check_place(out)
    options = tuple(given.data_options(option, data).items())
    people = Source(data, protocol, fold, str(source) if source else None, options, part)
    settings = given.settings(setting, sensorveil.Blinder.Settings, "blinder")
    obfuscator = sensorveil.Blinder(preset, seed, given.check_device(device), **settings)
    begun = start or out.with_name(f"{out.name}.start")
    if start and (keep or hide or settings):
        raise Refusal("--keep, --hide and --set are those of the run given with --start")
    if not (start or resume) and begun.exists():
        raise Refusal(f"{begun} was left by a federation; go on with --resume, or remove it")
    with screen.bars():
        if not begun.exists():
            obfuscator.prepare(people.windows(), given.names(keep or []), given.names(hide or []))
            sensorveil.save_run(obfuscator, begun)
        first = start_run(begun, device)
        keeper = Keeper(out.with_name(f"{out.name}.unfinished"), first, chosen, resume)
        if engine == "process":
            watch = _watching(screen, chosen)
            trained = federate(first, people.windows(), chosen, keeper, watch)
        else:
            trained = _over_flower(begun, people, chosen, workers, keeper, screen)
    sensorveil.save_run(trained, out)
    keeper.remove()
    if start is None:
        shutil.rmtree(begun)
    _report(screen, trained, out)


@app.command("app", cls=given.Command)
def write_app(
    folder: Annotated[Path, typer.Argument(help="The folder to write, for 'flwr run'.")],
    start: Annotated[Path, typer.Option("--start", help="The run to start from, on the server.")],
    out: Annotated[Path, typer.Option("--out", help="The run to write, on the server.")],
    clients: Annotated[int, typer.Option(help="How many clients to wait for.")],
    plan: PlanValues = None,
    fedblinder: FedBlinder = False,
    seed: given.Seed = 0,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Writes the Flower app of a federation of real devices; docs/federated.md shows the rest."""
    _check_flower()
    from sensorveil.federated.apps import app_folder
    from sensorveil.federated.sources import start_run

    screen = Screen(quiet, as_json)
    if clients < 1:
        raise Refusal(f"--clients is {clients}; at least one is needed")
    start_run(start)
    app_folder(folder, start, out, clients, _plan(plan, fedblinder, seed))
    screen.say(f"Send it to the SuperLink with: flwr run {folder}")
    screen.result({"app": str(folder)})


@app.command(cls=given.Command)
def experiment(
    name: Annotated[str, typer.Argument(help="'list' names all; several with commas.")],
    keep: Annotated[list[str] | None, typer.Option("--keep", help="What is needed.")] = None,
    hide: Annotated[list[str] | None, typer.Option("--hide", help="What is to be hidden.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The .json file to write; of several, a folder.")
    ] = None,
    data: given.Data = "watch",
    source: given.Source = None,
    option: given.Options = None,
    protocol: given.Protocol = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    preset: Annotated[str, typer.Option(help="paper or fast.")] = "fast",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of blinder, as name=value.")
    ] = None,
    plan: PlanValues = None,
    baseline_plan: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline-plan", help="What FedBlinder's plan has of its own, as rate=3e-4."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller fixed models.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a result that was cut off.")
    ] = False,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Experiments of Blinder's section 7, over all people in this process.

    The result is written after every point. With --resume, what it holds is not measured again;
    there may be more seeds than before.
    """
    import sensorveil
    from sensorveil.conditions import conditions
    from sensorveil.federated.experiments import EXPERIMENTS, Setting, run_experiment, split_for
    from sensorveil.federated.figures import paper_figures
    from sensorveil.federated.plan import Plan
    from sensorveil.files import write_json
    from sensorveil.measures.inference import ClassifierSettings
    from sensorveil.methods.policy import Policy

    screen = Screen(quiet, as_json)
    if name == "list":
        rows = [(known, (made.__doc__ or "").strip()) for known, made in EXPERIMENTS.items()]
        screen.table("Experiments", ("name", "what"), rows)
        screen.result(list(EXPERIMENTS))
        return
    names = list(dict.fromkeys(given.names([name])))  # one that is named twice is measured once
    for one in names or [name]:
        if one not in EXPERIMENTS:
            raise refuse_unknown("experiment", one, list(EXPERIMENTS))
    place = _result_place(out, resume, several=len(names) > 1)
    if seeds < 1:
        raise Refusal(f"--seeds is {seeds}; at least one is needed")
    settings = given.settings(setting, sensorveil.Blinder.Settings, "blinder")
    given.check_device(device)
    policy = Policy.of(given.names(keep or []), given.names(hide or []))
    made = sensorveil.Blinder(preset, 0, device, **settings)
    split = sensorveil.load(data, protocol, 0, source, **given.data_options(option, data))
    shared = Setting(
        split=split,
        keep=policy.keep,
        hide=policy.hide,
        plan=_plan(plan, False, 0),
        obfuscator=lambda seed: sensorveil.Blinder(preset, seed, device, **settings),
        seeds=range(seeds),
        inference=ClassifierSettings.quick() if quick else ClassifierSettings(),
        baseline=given.settings(baseline_plan, Plan, "a plan"),
    )
    shared.plan.fedblinder(**shared.baseline)  # refuses what is wrong before anything is trained
    head = {
        "format": 1,
        "kind": "federated experiment",
        "keep": list(policy.keep),
        "hide": list(policy.hide),
        "preset": preset,
        "settings": made.about(),
        "plan": asdict(shared.plan),
        "baseline": shared.baseline,
        "seeds": list(shared.seeds),
        "inference": asdict(shared.inference or ClassifierSettings()),
    }

    def measure(one: str, file: Path) -> dict[str, Any]:
        origin = split_for(one, split).test.origin
        paper = paper_figures(one, origin.dataset if origin else data, policy.hide)
        own = {**head, "data": asdict(origin) if origin else {}, "paper": paper}
        known = _cut_off(file, one, own) if file.exists() else None

        def done(found: dict[str, Any]) -> None:
            earlier = {"earlier": known["earlier"]} if known else {}
            write_json(file, {**own, **found, **earlier, "conditions": conditions(device)})

        with screen.bars():
            found = run_experiment(one, shared, done, known)
        _print_points(screen, found, (*policy.keep, *policy.hide))
        return {**own, **found}

    if len(names) == 1:
        screen.result(measure(names[0], place))
    else:
        place.mkdir(parents=True, exist_ok=True)
        screen.result([measure(one, place / f"{one}.json") for one in names])


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


def _print_points(screen: Screen, found: dict[str, Any], attributes: tuple[str, ...]) -> None:
    """A row for each point: what is special about it, bytes, and what was read."""
    rows = []
    for point in found["points"]:
        plain = {k: v for k, v in point.items() if not isinstance(v, list | dict)}
        own = [f"{k} {v}" for k, v in plain.items() if k not in ("bytes", "rounds", "people")]
        if "failed" in point:
            rows.append((", ".join(own), *[""] * (1 + len(attributes))))
            continue
        shares = [
            f"{100 * point['read'][name]:.1f} ({100 * point['read_dense'][name]:.1f})"
            for name in attributes
        ]
        rows.append((", ".join(own), f"{point['bytes'] / 1e6:.1f}", *shares))
    screen.table(
        f"{found['experiment']}, in % by convolutional (and dense) models trained on raw windows",
        ("point", "MB", *attributes),
        rows,
    )
    if "chosen" in found:
        best = {name: one["rate"] for name, one in found["chosen"].items() if name != "rule"}
        screen.say(f"Rates: {best}, by {found['chosen']['rule']}.")


def personalise(
    run: Annotated[Path, typer.Argument(help="A run of blinder.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder to write.")],
    data: given.Data,
    person: Annotated[str, typer.Option(help="The subject whose windows to adapt to.")],
    source: given.Source = None,
    option: given.Options = None,
    share: Annotated[float, typer.Option(help="Less than this share of the windows.")] = 0.05,
    steps: Annotated[int, typer.Option(help="Local steps.")] = 80,
    rate: Annotated[float, typer.Option(help="Rate of the steps.")] = 1e-4,
    seed: given.Seed = 0,
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Adapts a run to one new person, with a little of that person's own data."""
    import sensorveil
    from sensorveil.federated.personal import adaptation_set, personalised
    from sensorveil.federated.sources import Source, start_run

    screen = Screen(quiet, as_json)
    if out.exists():
        raise Refusal(f"{out} exists already; choose another place or remove it")
    check_place(out)
    if not (0 < share <= 1 and steps > 0 and rate > 0):
        raise Refusal("--share must be above 0 and at most 1, --steps and --rate above 0")
    obfuscator = start_run(run)
    options = tuple(given.data_options(option, data).items())
    own = Source(data, None, 0, str(source) if source else None, options, "all").person(person)
    try:
        few = adaptation_set(own, share, seed)
        with screen.bars():
            adapted = personalised(obfuscator, few, steps, rate, seed)
    except Refusal as refusal:
        raise Refusal(f"person {person} of {data}: {refusal}") from None
    sensorveil.save_run(adapted, out)
    screen.say(f"Adapted to {person} by {steps} steps on {len(few)} of {len(own)} windows: {out}")
    screen.result({"run": str(out), **adapted.metrics_["personalised"]})


def _plan(values: list[str] | None, fedblinder: bool, seed: int) -> Plan:
    from sensorveil.federated.plan import Plan

    chosen = Plan(**{"seed": seed, **given.settings(values, Plan, "a plan")})
    return chosen.fedblinder() if fedblinder else chosen


def _check_flower() -> None:
    if find_spec("flwr") is None:
        raise Refusal(
            "this needs Flower: pip install 'sensorveil[federated]', or take --engine process"
        )


def _over_flower(
    start: Path, people: Source, plan: Plan, workers: int, keeper: Keeper, screen: Screen
) -> Blinder:
    from sensorveil.federated.simulation import simulate as over_flower

    return over_flower(start, people, plan, workers, keeper, _watching(screen, plan))


def _watching(screen: Screen, plan: Plan) -> Callable[[State], None]:
    """Says what a round of a private federation has cost, and who was refused."""
    from sensorveil.federated.server import REASONS

    def watch(state: State) -> None:
        now = state.log[-1]
        if plan.noise:
            screen.say(
                f"round {state.number}: epsilon {now.epsilon:.3f} at delta {plan.delta:g},"
                " for all data of one person"
            )
        for number, client, reason in state.refusals[len(state.refusals) - now.refused :]:
            screen.say(f"round {number}: client {client} refused, {REASONS[reason]}")

    return watch


def _report(screen: Screen, trained: Blinder, out: Path) -> None:
    told: dict[str, Any] = trained.metrics_["federation"]
    screen.say(f"{told['rounds']} rounds, {told['bytes'] / 1e6:.1f} MB to and from clients: {out}")
    screen.result({"run": str(out), "federation": told})
