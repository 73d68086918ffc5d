"""The experiments of Blinder's section 7, over people in this process.

Each is a list of points that differ in one thing. Every point is a federation of its own; fixed
classifiers, trained on raw windows, predict kept and hidden attributes from its output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from benchmarks.blinder_rates import KINDS, choose_rates
from benchmarks.recipe import names, recipe
from sensorveil.classifiers import Classifier, ClassifierSettings
from sensorveil.data.splits import Split
from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.federated.client import draw, gather, select
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.meta_learning import adapt
from sensorveil.federated.personalise import SHARE, adaptation_set, personalise
from sensorveil.federated.server import FederatedServer, ServerState
from sensorveil.federated.simulation import LocalClients
from sensorveil.information import mutual_information_knn
from sensorveil.methods.blinder import Blinder
from sensorveil.progress import track
from sensorveil.vae import reparameterise

MLP_SETTINGS = ClassifierSettings(epochs=40, batch_size=512, learning_rate=1e-3, network="mlp")
"""The fixed classifiers of the authors' code on MotionSense."""

FACTORS = (0.1, 0.3, 1.0, 3.0)
"""Multiples of the learning rate that are tried, for Blinder and FedBlinder alike."""

RATIOS = (1.0, 3.0, 5.0, 7.0, 9.0)
FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9)
LARGER = (1, 4, 8, 16)
WORST = 10
"""R_D, R_U, batches of 16 to 256 windows, and how many people to adapt to, as in the paper."""

LOCAL_STEPS, FEWER = 8, (8, 5)
"""Local steps of fedavg, and how many times fewer rounds there are then."""

_INFORMATION_WINDOWS, _COMPONENTS = 2000, 25  # as many components as the code has numbers


@dataclass(frozen=True)
class Point:
    """One federation of an experiment.

    Parameters
    ----------
    values
        What is special about it.
    config
        Its configuration.
    fraction
        Share of the people that trains; others are tested where it is below 1.
    curves
        What is measured after every epoch, see `CURVES`.
    adapt_to
        How many of the people with the lowest accuracy the run is adapted to.
    """

    values: Mapping[str, Any]
    config: FederationConfig
    fraction: float = 1.0
    curves: tuple[str, ...] = ()
    adapt_to: int = 0


# Points by Blinder's configuration and FedBlinder's, for those who compare them.


def tuning(config: FederationConfig, baseline: FederationConfig) -> list[Point]:
    """Both at the same multiples of their learning rates, on validation windows: to choose by."""
    return [
        Point({"algorithm": name, "rate": rate}, own.with_values({"learning_rate": rate}))
        for factor in FACTORS
        for name, own in _both(config, baseline).items()
        for rate in [float(f"{own.learning_rate * factor:.4g}")]
    ]


def results(config: FederationConfig, baseline: FederationConfig) -> list[Point]:
    """Figure 8: Blinder and FedBlinder with as many rounds."""
    return [Point({"algorithm": name}, own) for name, own in _both(config, baseline).items()]


def heterogeneity(config: FederationConfig, baseline: FederationConfig) -> list[Point]:
    """Section 7.7: classes more and more uneven, for both alike; nothing evens them out again.

    What clients learn from is uneven; the run that they start from is made of windows as they are.
    """
    return [
        Point(
            {"algorithm": name, "ratio": ratio},
            own.with_values({"class_ratio": ratio, "balance": config.balance}),
        )
        for ratio in RATIOS
        for name, own in _both(config, baseline).items()
    ]


def _both(config: FederationConfig, baseline: FederationConfig) -> dict[str, FederationConfig]:
    return {"Blinder": config, "FedBlinder": baseline}


def unseen(config: FederationConfig, _: FederationConfig) -> list[Point]:
    """Section 7.8: a share of the people trains, the others are tested."""
    return [Point({"taking part": fraction}, config, fraction) for fraction in FRACTIONS]


def personal(config: FederationConfig, _: FederationConfig) -> list[Point]:
    """Section 7.8: half of the people trains; runs are adapted to the worst of the others."""
    return [Point({"taking part": FRACTIONS[0]}, config, FRACTIONS[0], adapt_to=WORST)]


def communication(config: FederationConfig, _: FederationConfig) -> list[Point]:
    """Section 7.9: larger batches in fewer rounds with more local steps; and fedavg of 8 steps.

    The latter are ours: once with as many steps in all, and once with more, for a fifth of the
    bytes.
    """
    points = []
    for times in LARGER:
        larger = config.with_values(
            {
                "support_size": times * config.support_size,
                "query_size": times * config.query_size,
                "adaptation.steps": times * config.adaptation.steps,
                "rounds": max(1, config.rounds // times),
            }
        )
        points.append(Point({"batch": larger.batch_size, "sends": "gradients"}, larger))
    for fewer in FEWER:
        rounds = max(1, config.rounds // fewer)
        own = {"algorithm": "fedavg", "local_steps": LOCAL_STEPS, "rounds": rounds}
        sends = f"changes of {LOCAL_STEPS} steps, {fewer} times fewer"
        values = {"batch": config.batch_size, "sends": sends}
        points.append(Point(values, config.with_values(own)))
    return points


def shadows(config: FederationConfig, _: FederationConfig) -> list[Point]:
    """Figure 4: the discriminators' loss on query sets, with and without shadow samples."""
    return [
        Point(
            {"shadows": on},
            config.with_values({"adaptation.shadow_samples": on}),
            curves=("discriminators",),
        )
        for on in (True, False)
    ]


def information(config: FederationConfig, _: FederationConfig) -> list[Point]:
    """Figure 9: information of the output's principal components, epoch by epoch."""
    return [Point({}, config, curves=("information",))]


EXPERIMENTS: Mapping[str, Callable[[FederationConfig, FederationConfig], list[Point]]] = {
    one.__name__: one
    for one in (
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
"""Fixed classifiers by kind and attribute."""

OnPoint = Callable[[dict[str, Any]], None]
"""Is given the result so far, so that what is cut off leaves what it has."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What all points of all experiments share.

    Parameters
    ----------
    split
        Training and test windows.
    keep, hide
        The policy.
    config
        Blinder's configuration; FedBlinder's has other values by its nature, and `baseline`.
    start
        An untrained Blinder that federations start from, by seed.
    seeds
        Each point is measured with all of them.
    inference
        Settings of the convolutional fixed classifiers.
    baseline
        Values of FedBlinder's own.
    """

    split: Split
    keep: tuple[str, ...]
    hide: tuple[str, ...]
    config: FederationConfig
    start: Callable[[int], Blinder]
    seeds: Sequence[int] = (0,)
    inference: ClassifierSettings | None = None
    baseline: Mapping[str, Any] = field(default_factory=dict)
    _models: dict[int, Models] = field(default_factory=dict, init=False)
    _starts: dict[tuple[int, float], Blinder] = field(default_factory=dict, init=False)

    def fedblinder(self) -> FederationConfig:
        """The baseline's configuration, with as many rounds as Blinder's."""
        made = self.config.fedblinder(self.baseline)
        if made.total_rounds != self.config.total_rounds:
            raise Refusal(
                f"FedBlinder would have {made.total_rounds} rounds and Blinder"
                f" {self.config.total_rounds}; they are compared with as many, so leave epochs and"
                " rounds out of the baseline's configuration"
            )
        return made

    def fitted_start(self, seed: int, fraction: float) -> Blinder:
        """What federations of some of the people start from, fitted once."""
        if (seed, fraction) not in self._starts:
            own = self.split.train.select(sampled_people(self.split.train, fraction, seed))
            self._starts[seed, fraction] = self.start(seed).fit(own, self.keep, self.hide)
        return self._starts[seed, fraction]

    def models(self, seed: int) -> Models:
        """The papers' convolutional networks and the authors' dense ones, trained once."""
        if seed not in self._models:
            settings = dict(zip(KINDS, (self.inference, MLP_SETTINGS), strict=True))
            wanted = [(kind, name) for kind in KINDS for name in (*self.keep, *self.hide)]
            device = self.start(seed).device
            self._models[seed] = {
                (kind, name): Classifier(settings[kind], seed, device).fit(self.split.train, name)
                for kind, name in track(wanted, "fixed classifiers")
            }
        return self._models[seed]


def run_experiment(
    name: str, setting: Setting, on_point: OnPoint, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All points of an experiment, for all seeds, with accuracies of fixed classifiers.

    `known` holds `points` and `raw` of a run that was cut off; these are not measured again.
    """
    if name not in EXPERIMENTS:
        raise refuse_unknown("experiment", name, list(EXPERIMENTS))
    choosing = name == tuning.__name__
    if choosing:  # with classifiers of its own, which never saw validation windows
        setting = replace(setting, split=split_for(name, setting.split))
    points = EXPERIMENTS[name](setting.config, setting.fedblinder())
    test = setting.split.test
    found: dict[str, Any] = {"experiment": name}
    found |= {part: [*(known or {}).get(part, ())] for part in ("points", "raw")}
    for number, seed in enumerate(setting.seeds):
        left = [point for point in points if not _is_known(point, seed, found["points"])]
        if left and len(found["raw"]) == number:
            found["raw"].append(accuracies(setting.models(seed), test, test))
        for point in track(left, f"points of {name}"):
            measured = _measure(point, setting, seed, may_fail=choosing)
            found["points"].append({**point.values, "seed": seed, **measured})
            on_point(found)
        if choosing:
            whole = [one for one in found["points"] if one["seed"] in setting.seeds[: number + 1]]
            chance = {hidden: 1 / len(test.classes[hidden]) for hidden in setting.hide}
            found["chosen"] = choose_rates(whole, setting.keep, chance)
            on_point(found)
    return found


def split_for(name: str, split: Split) -> Split:
    """What an experiment learns from and looks at: in one to choose by, no test windows."""
    return split.for_validation() if name == tuning.__name__ else split


def _is_known(point: Point, seed: int, known: Sequence[Mapping[str, Any]]) -> bool:
    config = point.config.with_values({"seed": seed}).flat()
    own = {**point.values, "seed": seed, "plan": config}
    return any(all(entry.get(key) == value for key, value in own.items()) for entry in known)


def _measure(point: Point, setting: Setting, seed: int, may_fail: bool = False) -> dict[str, Any]:
    """One federation, its curves, and accuracies on its output.

    Where learning rates are tried, one that diverges must not cost the others.
    """
    config = point.config.with_values({"seed": seed})
    try:
        return _measured(point, config, setting, seed)
    except Refusal as refusal:
        if not may_fail:
            raise
        return {"plan": config.flat(), "failed": str(refusal)}


def _measured(
    point: Point, config: FederationConfig, setting: Setting, seed: int
) -> dict[str, Any]:
    train, test = setting.split.train, setting.split.test
    start, models = setting.fitted_start(seed, point.fraction), setting.models(seed)
    inside = sampled_people(train, point.fraction, seed)
    clients = LocalClients.of(start, train.select(inside), config)
    curves: dict[str, list[Any]] = {curve: [] for curve in point.curves}

    def on_round(state: ServerState) -> None:
        if len(state.rounds) % config.rounds == 0:
            for curve, values in curves.items():
                values.append(CURVES[curve](start, state, clients, test))

    server = FederatedServer(start.weights(), config, on_round=on_round)
    clients.train(server)
    trained, people = server.trained(start, len(clients.data)), np.unique(train.subject[inside])
    if point.fraction < 1:
        test = test.select(~np.isin(test.subject, people))
    entry: dict[str, Any] = {
        "plan": config.flat(),
        "people": len(people),
        "rounds": server.number,
        "bytes": server.summary()["bytes"],
        **accuracies(models, trained.obfuscate(test, seed=seed), test),
        **curves,
    }
    if point.adapt_to:
        entry["adapted"] = _adapt_to_worst(trained, setting, test, seed, point.adapt_to)
    return entry


def sampled_people(windows: Windows, fraction: float, seed: int) -> np.ndarray:
    """A mask of the windows of a share of all people, drawn at random."""
    people = np.unique(windows.subject)
    count = max(1, round(fraction * len(people)))
    return np.isin(
        windows.subject, np.random.default_rng(seed).choice(people, count, replace=False)
    )


def _adapt_to_worst(
    run: Blinder, setting: Setting, test: Windows, seed: int, count: int
) -> list[dict[str, Any]]:
    """Adapt to the people whose kept attribute has the lowest accuracy; before and after."""
    models, train = setting.models(seed), setting.split.train
    before = {
        person: (own, accuracies(models, run.obfuscate(own, seed=seed), own))
        for person in np.unique(test.subject)
        for own in [test.select(test.subject == person)]
    }
    worst = sorted(before, key=lambda person: before[person][1][KINDS[0]][setting.keep[0]])[:count]
    entries = []
    for person in track(worst, "people adapted to"):
        own, was = before[person]
        known = train.select(train.subject == person)
        if not len(known):
            raise Refusal("adapting needs training windows of the people tested: split paper")
        few = adaptation_set(known, SHARE, seed)
        adapted = personalise(run, few, seed=seed)
        now = accuracies(models, adapted.obfuscate(own, seed=seed), own)
        entries.append({"windows": len(few), "before": was, "after": now})
    return entries


def accuracies(models: Models, output: Windows, truth: Windows) -> dict[str, dict[str, float]]:
    """Accuracy of each fixed classifier, by its kind and attribute."""
    found: dict[str, dict[str, float]] = {}
    for (kind, name), model in models.items():
        known = truth.codes(name) != UNKNOWN
        right = model.predict(output) == truth.codes(name)
        found.setdefault(kind, {})[name] = float(right[known].mean())
    return found


def discriminator_loss(
    start: Blinder, state: ServerState, clients: LocalClients, test: Windows
) -> float:
    """Equation (3) on everybody's next query set, after adapting to the support set."""
    loss, config, losses = clients.loss, clients.config, []
    for client, data in clients.data.items():
        drawn = draw(len(data), loss.network, config, client, len(state.rounds))
        batch = select(gather(data, drawn, loss.network, config), 0)
        weights = loss.network.unflatten(state.weights)
        adapted = adapt(loss, *weights, batch, **config.adaptation.model_dump())
        codes = loss.network.encode(batch.query.windows, adapted[0])
        z = reparameterise(*codes, batch.query.noise)
        losses.append(loss.discriminator(adapted[1], z, batch.query.hidden))
    return float(torch.stack(losses).mean())


def component_information(
    start: Blinder, state: ServerState, clients: LocalClients, test: Windows
) -> dict[str, float]:
    """Mutual information of 25 principal components of the output and each attribute, in bits."""
    some = test.select(np.arange(0, len(test), max(1, len(test) // _INFORMATION_WINDOWS)))
    hidden = start.with_weights(state.weights).obfuscate(some, seed=0)
    rows = hidden.standardized(start.scaling_).signal.reshape(len(some), -1)
    return {
        name: mutual_information_knn(rows, some.codes(name), _COMPONENTS)
        for name in (*start.policy_.keep, *start.policy_.hide)
    }


CURVES: Mapping[str, Callable[[Blinder, ServerState, LocalClients, Windows], Any]] = {
    "discriminators": discriminator_loss,
    "information": component_information,
}


# What the paper states in numbers, in percent. Sections 7.3, 7.4 and 7.6 are in the recipes.

_MOBIACT_GENDER: Mapping[str, Mapping[str, Any]] = {
    "heterogeneity": {
        "FedBlinder, ratio 1": {"activity": 92.49},
        "FedBlinder, ratio 9": {"activity": 85.86},
    },
    "unseen": {
        "taking part 0.9": {"activity": 94.84, "gender": 49.7},
        "taking part 0.5": {"activity": 89.61},
    },
    "personal": {
        "before": {"activity": 84.47, "gender": 50.61},
        "after": {"activity": 89.57},
    },
    "communication": {"batch 16": {"activity": 93.75, "gender": 53.55}},
}


def paper_figures(experiment: str, dataset: str, hide: Sequence[str]) -> Mapping[str, Any]:
    """The paper's numbers for an experiment on a dataset, or nothing.

    >>> paper_figures("results", "motionsense", ["gender"])["Blinder"]["activity"]
    93.61
    >>> paper_figures("unseen", "motionsense", ["gender"])
    {}
    """
    if experiment == "results":
        name = f"blinder-{dataset}-{hide[0] if len(hide) == 1 else 'both'}"
        rows = recipe(name).rows if name in names() else ()
        return {row.label: row.paper for row in rows if row.federation}
    if (dataset, tuple(hide)) == ("mobiact", ("gender",)):
        return _MOBIACT_GENDER.get(experiment, {})
    return {}
