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
from sensorveil.federated.choice import chosen
from sensorveil.federated.client import draw_task
from sensorveil.federated.in_process import InProcess
from sensorveil.federated.keeping import finished
from sensorveil.federated.personal import SHARE, adaptation_set, personalised
from sensorveil.federated.plan import Plan
from sensorveil.federated.rounds import run_rounds
from sensorveil.federated.server import State
from sensorveil.measures.inference import Classifier, ClassifierSettings
from sensorveil.measures.information import mutual_information_knn
from sensorveil.methods.blinder import Blinder
from sensorveil.nets.blinder import encoded, surprise
from sensorveil.nets.factorised import sampled
from sensorveil.nets.meta import adapted
from sensorveil.progress import track
from sensorveil.recipes.plan import DENSE

RATES = (0.1, 0.3, 1.0, 3.0)
"""How many times the plan's rate is tried, for Blinder and FedBlinder alike."""

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


# Points by Blinder's plan and FedBlinder's, for those who compare them.


def tuning(plan: Plan, plain: Plan) -> list[Point]:
    """Both at the same multiples of their rates, on validation windows: to choose by."""
    return [
        Point({"algorithm": name, "rate": one.rate}, one)
        for times in RATES
        for name, own in _both(plan, plain).items()
        for one in [replace(own, rate=float(f"{own.rate * times:.4g}"))]
    ]


def results(plan: Plan, plain: Plan) -> list[Point]:
    """Figure 8: Blinder and FedBlinder with as many rounds."""
    return [Point({"algorithm": name}, own) for name, own in _both(plan, plain).items()]


def heterogeneity(plan: Plan, plain: Plan) -> list[Point]:
    """Section 7.7: classes more and more uneven, for both alike; nothing evens them out again.

    What clients learn from is uneven; the run that they start from is made of windows as they are.
    """
    return [
        Point({"algorithm": name, "ratio": ratio}, replace(own, skew=ratio, balance=plan.balance))
        for ratio in RATIOS
        for name, own in _both(plan, plain).items()
    ]


def _both(plan: Plan, plain: Plan) -> dict[str, Plan]:
    return {"Blinder": plan, "FedBlinder": plain}


def unseen(plan: Plan, _: Plan) -> list[Point]:
    """Section 7.8: a share of the people trains, the others are read."""
    return [Point({"taking part": share}, plan, share) for share in TAKING_PART]


def personal(plan: Plan, _: Plan) -> list[Point]:
    """Section 7.8: half of the people trains; runs are adapted to the worst of the others."""
    return [Point({"taking part": TAKING_PART[0]}, plan, TAKING_PART[0], adapt_to=WORST)]


def communication(plan: Plan, _: Plan) -> list[Point]:
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


def shadows(plan: Plan, _: Plan) -> list[Point]:
    """Figure 4: the discriminators' loss on query sets, with and without shadow samples."""
    return [
        Point({"shadows": on}, replace(plan, shadows=on), curves=("discriminators",))
        for on in (True, False)
    ]


def information(plan: Plan, _: Plan) -> list[Point]:
    """Figure 9: what principal components of the output say, epoch by epoch."""
    return [Point({}, plan, curves=("information",))]


EXPERIMENTS: Mapping[str, Callable[[Plan, Plan], list[Point]]] = {
    made.__name__: made
    for made in (
        tuning,
        results,
        heterogeneity,
        unseen,
        personal,
        communication,
        shadows,
        information,
    )
}


Models = Mapping[tuple[str, str], Classifier]
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
    """Blinder's; FedBlinder's has other values by its nature, and those of `baseline`."""
    obfuscator: Callable[[int], Blinder]
    """A Blinder that has learnt nothing yet, by seed."""
    seeds: Sequence[int] = (0,)
    inference: ClassifierSettings | None = None
    baseline: Mapping[str, Any] = field(default_factory=dict)
    models: dict[int, Models] = field(default_factory=dict, init=False)
    start: dict[tuple[int, float], Blinder] = field(default_factory=dict, init=False)


Done = Callable[[dict[str, Any]], None]
"""Is given the result so far, so that what is cut off leaves what it has."""


def run_experiment(
    name: str, setting: Setting, done: Done, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All points of an experiment, for all seeds, with what fixed models read.

    What is `known` from a run that was cut off, `points` and `raw`, is not measured again.
    """
    if name not in EXPERIMENTS:
        raise refuse_unknown("experiment", name, list(EXPERIMENTS))
    choosing = name == tuning.__name__
    if choosing:  # with models and readers of its own, which never saw validation windows
        setting = replace(setting, split=split_for(name, setting.split))
    points = EXPERIMENTS[name](setting.plan, setting.plan.fedblinder(**setting.baseline))
    test, measure = setting.split.test, _attempted if choosing else _measured
    found: dict[str, Any] = {"experiment": name}
    found |= {part: [*(known or {}).get(part, ())] for part in ("points", "raw")}
    for number, seed in enumerate(setting.seeds):
        left = [point for point in points if not _is_known(point, seed, found["points"])]
        if left and len(found["raw"]) == number:
            found["raw"].append(read(_fixed_models(setting, seed), test, test))
        for point in track(left, f"points of {name}"):
            measured = measure(point, setting, seed)
            found["points"].append({**point.values, "seed": seed, **measured})
            done(found)
        if choosing:
            whole = [one for one in found["points"] if one["seed"] in setting.seeds[: number + 1]]
            even = {hidden: 1 / len(test.classes[hidden]) for hidden in setting.hide}
            found["chosen"] = chosen(whole, setting.keep, even)
            done(found)
    return found


def split_for(name: str, split: Split) -> Split:
    """What an experiment learns from and looks at: in one to choose by, no test windows."""
    return split.for_validation() if name == tuning.__name__ else split


def _is_known(point: Point, seed: int, known: Sequence[Mapping[str, Any]]) -> bool:
    own = {**point.values, "seed": seed, "plan": asdict(replace(point.plan, seed=seed))}
    return any(all(entry.get(key) == value for key, value in own.items()) for entry in known)


def _prepared(setting: Setting, seed: int, share: float) -> Blinder:
    """What federations start from, trained once."""
    if (seed, share) not in setting.start:
        train = setting.split.train
        own = train.select(taking_part(train, share, seed))
        setting.start[seed, share] = setting.obfuscator(seed).prepare(
            own, setting.keep, setting.hide
        )
    return setting.start[seed, share]


def _measured(point: Point, setting: Setting, seed: int) -> dict[str, Any]:
    """One federation, its curves, and what is read from its output."""
    train, test = setting.split.train, setting.split.test
    obfuscator, models = _prepared(setting, seed, point.taking_part), _fixed_models(setting, seed)
    inside = taking_part(train, point.taking_part, seed)
    plan = replace(point.plan, seed=seed)
    carrier = InProcess.of(obfuscator, train.select(inside), plan)
    curves: dict[str, list[Any]] = {curve: [] for curve in point.curves}

    def look(state: State) -> None:
        if state.number % plan.rounds == 0:
            for curve, values in curves.items():
                values.append(_CURVES[curve](obfuscator, state, carrier, test))

    state = run_rounds(State.fresh(obfuscator.weights()), plan, carrier, watch=look)
    trained = finished(obfuscator, state, plan, len(carrier.clients()))
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


def _attempted(point: Point, setting: Setting, seed: int) -> dict[str, Any]:
    """The same where some rates are too high: one that diverges must not cost the others."""
    try:
        return _measured(point, setting, seed)
    except Refusal as refusal:
        return {"plan": asdict(replace(point.plan, seed=seed)), "failed": str(refusal)}


def taking_part(windows: Windows, share: float, seed: int) -> np.ndarray:
    """A mask of the windows of a share of all people, drawn at random."""
    people = np.unique(windows.subject)
    count = max(1, round(share * len(people)))
    chosen = np.random.default_rng(seed).choice(people, count, replace=False)
    return np.isin(windows.subject, chosen)


def _adapted_to_worst(
    obfuscator: Blinder,
    setting: Setting,
    test: Windows,
    seed: int,
    models: Models,
    count: int,
) -> list[dict[str, Any]]:
    """Adapts to the people whose kept attribute is read worst; readings before and after."""
    before = {
        person: (own, read(models, obfuscator.obfuscate(own, seed=seed), own))
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
        closer = personalised(obfuscator, few, seed=seed)
        now = read(models, closer.obfuscate(own, seed=seed), own)
        entries.append({"windows": len(few), "before": was, "after": now})
    return entries


def _fixed_models(setting: Setting, seed: int) -> Models:
    """The papers' convolutional networks, and the dense ones that the authors' code judges by.

    They are trained once.
    """
    if seed not in setting.models:
        kinds = {"read": setting.inference, "read_dense": DENSE}
        device, attributes = setting.obfuscator(seed).device, (*setting.keep, *setting.hide)
        wanted = [(kind, name) for kind in kinds for name in attributes]
        setting.models[seed] = {
            (kind, name): Classifier(kinds[kind], seed, device).fit(setting.split.train, name)
            for kind, name in track(wanted, "fixed models")
        }
    return setting.models[seed]


def read(models: Models, output: Windows, truth: Windows) -> dict[str, dict[str, float]]:
    """The share of windows whose class each model reads right, by its kind and attribute."""
    shares: dict[str, dict[str, float]] = {}
    for (kind, name), model in models.items():
        known = truth.codes(name) != UNKNOWN
        right = model.predict(output) == truth.codes(name)
        shares.setdefault(kind, {})[name] = float(right[known].mean())
    return shares


def discriminator_loss(
    obfuscator: Blinder, state: State, carrier: InProcess, test: Windows
) -> float:
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
    obfuscator: Blinder, state: State, carrier: InProcess, test: Windows
) -> dict[str, float]:
    """Mutual information of 25 principal components of the output and each attribute, in bits."""
    some = test.select(np.arange(0, len(test), max(1, len(test) // _LOOKED_AT)))
    hidden = obfuscator.with_weights(state.vector).obfuscate(some, seed=0)
    rows = hidden.scaled(obfuscator.scaling_).signal.reshape(len(some), -1)
    return {
        name: mutual_information_knn(rows, some.codes(name), _COMPONENTS)
        for name in (*obfuscator.policy_.keep, *obfuscator.policy_.hide)
    }


_CURVES: Mapping[str, Callable[[Blinder, State, InProcess, Windows], Any]] = {
    "discriminators": discriminator_loss,
    "information": component_information,
}
