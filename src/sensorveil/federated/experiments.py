"""The experiments of Blinder's section 7, over people in this process.

Each is a list of points that differ in one thing. Every point is a federation of its own; what its
output says of the kept and the hidden attributes is read by fixed models, trained on raw windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.federated.client import draw_task
from sensorveil.federated.in_process import InProcess
from sensorveil.federated.keeping import finished
from sensorveil.federated.personal import SHARE, adaptation_set, personalised
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import run_rounds
from sensorveil.federated.server import State
from sensorveil.measures.inference import InferenceModel, InferenceSettings
from sensorveil.measures.information import mutual_information_knn
from sensorveil.methods.blinder import Blinder
from sensorveil.nets.blinder import encoded, surprise
from sensorveil.nets.factorised import sampled
from sensorveil.nets.meta import adapted
from sensorveil.progress import track
from sensorveil.recipes.plan import DENSE

RATIOS = (1.0, 3.0, 5.0, 7.0, 9.0)
TAKING_PART = (0.5, 0.6, 0.7, 0.8, 0.9)
LARGER = (1, 4, 8, 16)
WORST = 10
"""R_D, R_U, batches of 16 to 256 windows, and how many people to adapt to, as in the paper."""

STEPS, FEWER = 8, (8, 5)
"""Local steps before changes are sent, and how many times fewer rounds there are then."""

_LOOKED_AT = 2000  # windows that information is estimated from
_COMPONENTS = 25  # as many as the code has numbers


@dataclass(frozen=True)
class Point:
    """One federation of an experiment: what is special about it, its plan, who takes part."""

    values: Mapping[str, Any]
    plan: Plan
    taking_part: float = 1.0
    curves: tuple[str, ...] = ()
    """What is looked at after every epoch."""
    adapt_to: int = 0
    """How many of the people who are read worst the run is adapted to."""


def results(plan: Plan) -> list[Point]:
    """Figure 8: Blinder and FedBlinder with as many rounds."""
    return [
        Point({"algorithm": "Blinder"}, plan),
        Point({"algorithm": "FedBlinder"}, plan.fedblinder()),
    ]


def heterogeneity(plan: Plan) -> list[Point]:
    """Section 7.7: classes more and more uneven; nothing is balanced, for a fair comparison."""
    points = []
    for ratio in RATIOS:
        uneven = replace(plan, skew=ratio)
        plain = replace(plan.fedblinder(), skew=ratio, balance=plan.balance)
        points.append(Point({"algorithm": "Blinder", "ratio": ratio}, uneven))
        points.append(Point({"algorithm": "FedBlinder", "ratio": ratio}, plain))
    return points


def unseen(plan: Plan) -> list[Point]:
    """Section 7.8: a share of the people trains, the others are read."""
    return [Point({"taking part": share}, plan, share) for share in TAKING_PART]


def personal(plan: Plan) -> list[Point]:
    """Section 7.8: half of the people trains; runs are adapted to the worst of the others."""
    return [Point({"taking part": TAKING_PART[0]}, plan, TAKING_PART[0], adapt_to=WORST)]


def communication(plan: Plan) -> list[Point]:
    """Section 7.9: larger batches in fewer rounds with more local steps; and changes of 8 steps.

    The latter are ours: once with as many steps in all, and once with more, for a fifth of the
    bytes.
    """
    points = []
    for times in LARGER:
        larger = replace(
            plan,
            support=times * plan.support,
            query=times * plan.query,
            inner_steps=times * plan.inner_steps,
            rounds=max(1, plan.rounds // times),
        )
        points.append(Point({"batch": larger.batch, "sends": "gradients"}, larger))
    for fewer in FEWER:
        own = replace(plan, sends="changes", local_steps=STEPS, rounds=max(1, plan.rounds // fewer))
        sends = f"changes of {STEPS} steps, {fewer} times fewer"
        points.append(Point({"batch": plan.batch, "sends": sends}, own))
    return points


def shadows(plan: Plan) -> list[Point]:
    """Figure 4: the discriminators' loss on query sets, with and without shadow samples."""
    return [
        Point({"shadows": on}, replace(plan, shadows=on), curves=("discriminators",))
        for on in (True, False)
    ]


def information(plan: Plan) -> list[Point]:
    """Figure 9: what principal components of the output say, epoch by epoch."""
    return [Point({}, plan, curves=("information",))]


EXPERIMENTS: Mapping[str, Callable[[Plan], list[Point]]] = {
    made.__name__: made
    for made in (results, heterogeneity, unseen, personal, communication, shadows, information)
}


Models = Mapping[tuple[str, str], InferenceModel]
"""Fixed models by kind and attribute."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What all points of all experiments share.

    What is trained once stays here: the fixed `models` by seed, and the Blinders that federations
    `start` from by seed and share of people.
    """

    split: Split
    keep: tuple[str, ...]
    hide: tuple[str, ...]
    plan: Plan
    veil: Callable[[int], Blinder]
    """A Blinder that has learnt nothing yet, by seed."""
    seeds: Sequence[int] = (0,)
    inference: InferenceSettings | None = None
    models: dict[int, Models] = field(default_factory=dict, init=False)
    start: dict[tuple[int, float], Blinder] = field(default_factory=dict, init=False)


Done = Callable[[dict[str, Any]], None]
"""Is given the result so far, so that what is cut off leaves what it has."""


def run_experiment(name: str, setting: Setting, done: Done) -> dict[str, Any]:
    """All points of an experiment, for all seeds, with what fixed models read."""
    if name not in EXPERIMENTS:
        raise refuse_unknown("experiment", name, list(EXPERIMENTS))
    points = EXPERIMENTS[name](setting.plan)
    found: dict[str, Any] = {"experiment": name, "points": []}
    for seed in setting.seeds:
        if seed not in setting.models:
            setting.models[seed] = _fixed_models(setting, seed)
        models = setting.models[seed]
        found.setdefault("raw", []).append(read(models, setting.split.test, setting.split.test))
        for point in track(points, f"points of {name}"):
            which = (seed, point.taking_part)
            if which not in setting.start:
                setting.start[which] = _prepared(setting, *which)
            measured = _measured(point, setting, setting.start[which], seed, models)
            found["points"].append({**point.values, "seed": seed, **measured})
            done(found)
    return found


def _prepared(setting: Setting, seed: int, share: float) -> Blinder:
    train = setting.split.train
    own = train.select(taking_part(train, share, seed))
    return setting.veil(seed).prepare(own, setting.keep, setting.hide)


def _measured(
    point: Point,
    setting: Setting,
    veil: Blinder,
    seed: int,
    models: Models,
) -> dict[str, Any]:
    """One federation, its curves, and what is read from its output."""
    train, test = setting.split.train, setting.split.test
    inside = taking_part(train, point.taking_part, seed)
    plan = replace(point.plan, seed=seed)
    carrier = InProcess.of(veil, train.select(inside), plan)
    curves: dict[str, list[Any]] = {curve: [] for curve in point.curves}

    def look(state: State) -> None:
        if state.number % plan.rounds == 0:
            for curve, values in curves.items():
                values.append(_CURVES[curve](veil, state, carrier, test))

    state = run_rounds(State.fresh(veil.weights()), plan, carrier, watch=look)
    trained = finished(veil, state, plan)
    if point.taking_part < 1:
        people = np.unique(train.subject[inside])
        test = test.select(~np.isin(test.subject, people))
    entry: dict[str, Any] = {
        "plan": asdict(plan),
        "people": len(np.unique(train.subject[inside])),
        "rounds": state.number,
        "bytes": state.bytes_sent,
        **read(models, trained.obfuscate(test, seed=seed), test),
        **curves,
    }
    if point.adapt_to:
        entry["adapted"] = _adapted_to_worst(trained, setting, test, seed, models, point.adapt_to)
    return entry


def taking_part(windows: Windows, share: float, seed: int) -> np.ndarray:
    """A mask of the windows of a share of all people, drawn at random."""
    people = np.unique(windows.subject)
    count = max(1, round(share * len(people)))
    chosen = np.random.default_rng(seed).choice(people, count, replace=False)
    return np.isin(windows.subject, chosen)


def _adapted_to_worst(
    veil: Blinder,
    setting: Setting,
    test: Windows,
    seed: int,
    models: Models,
    count: int,
) -> list[dict[str, Any]]:
    """Adapts to the people whose kept attribute is read worst; readings before and after."""
    before = {
        person: (own, read(models, veil.obfuscate(own, seed=seed), own))
        for person in np.unique(test.subject)
        for own in [test.select(test.subject == person)]
    }
    kept = setting.keep[0]
    worst = sorted(before, key=lambda person: before[person][1]["read"][kept])[:count]
    entries = []
    for person in track(worst, "people adapted to"):
        own, was = before[person]
        known = setting.split.train.select(setting.split.train.subject == person)
        if not len(known):
            raise Refusal("adapting needs training windows of the people tested: split paper")
        few = adaptation_set(known, SHARE, seed)
        closer = personalised(veil, few, seed=seed)
        now = read(models, closer.obfuscate(own, seed=seed), own)
        entries.append({"windows": len(few), "before": was, "after": now})
    return entries


def _fixed_models(setting: Setting, seed: int) -> Models:
    """The papers' convolutional networks, and the dense ones that the authors' code judges by."""
    kinds = {"read": setting.inference, "read_dense": DENSE}
    device, attributes = setting.veil(seed).device, (*setting.keep, *setting.hide)
    wanted = [(kind, name) for kind in kinds for name in attributes]
    return {
        (kind, name): InferenceModel(kinds[kind], seed, device).fit(setting.split.train, name)
        for kind, name in track(wanted, "fixed models")
    }


def read(models: Models, output: Windows, truth: Windows) -> dict[str, dict[str, float]]:
    """The share of windows whose class each model reads right, by its kind and attribute."""
    shares: dict[str, dict[str, float]] = {}
    for (kind, name), model in models.items():
        known = truth.codes(name) != UNKNOWN
        right = model.predict(output) == truth.codes(name)
        shares.setdefault(kind, {})[name] = float(right[known].mean())
    return shares


def discriminator_loss(veil: Blinder, state: State, carrier: InProcess, test: Windows) -> float:
    """Equation (3) on everybody's next query set, after adapting to the support set."""
    trainee, plan, losses = carrier.trainee, carrier.plan, []
    for client, data in carrier.data.items():
        task = draw_task(data, trainee, plan, client, state.number)
        weights = trainee.layout.by_player(state.vector)
        coder, readers = adapted(trainee.nets, *weights, task, plan.adapting(), trainee.scale)
        z = sampled(*encoded(trainee.nets, coder, task.query.windows), task.query.noise)
        losses.append(surprise(trainee.nets, readers, z, task.query.hidden))
    return float(torch.stack(losses).mean())


def component_information(
    veil: Blinder, state: State, carrier: InProcess, test: Windows
) -> dict[str, float]:
    """Mutual information of 25 principal components of the output and each attribute, in bits."""
    some = test.select(np.arange(0, len(test), max(1, len(test) // _LOOKED_AT)))
    hidden = veil.with_weights(state.vector).obfuscate(some, seed=0)
    rows = hidden.scaled(veil.scaling_).signal.reshape(len(some), -1)
    return {
        name: mutual_information_knn(rows, some.codes(name), _COMPONENTS)
        for name in (*veil.policy_.keep, *veil.policy_.hide)
    }


_CURVES: Mapping[str, Callable[[Blinder, State, InProcess, Windows], Any]] = {
    "discriminators": discriminator_loss,
    "information": component_information,
}
