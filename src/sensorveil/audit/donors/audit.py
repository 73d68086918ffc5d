"""The audit of donors: what the output and the trained method reveal about their training people.

Copies are looked for in the very output. Everything else needs windows that were drawn like the
training windows and not trained on. So the method is trained again on halves of the recordings, each
time on a half and on the other one. Where no models are trained, fresh windows are those of the test, if
its people are in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone

from sensorveil.audit.criterion import judge_donors
from sensorveil.audit.donors.lira import (
    above_nonmembers,
    attacks_in_turn,
    check_models,
    complementary_halves,
    likelihood_ratios,
)
from sensorveil.audit.donors.nearness import (
    copy_tolerance,
    count_copies,
    nearest,
    nearness_of,
    nearness_table,
)
from sensorveil.audit.results import DonorAudit, Membership
from sensorveil.audit.store import Arrays, Store
from sensorveil.audit.threat_models import Fold, Output, obfuscate_some, thinned_positions
from sensorveil.data.windows import UNKNOWN, Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator, Strength
from sensorveil.methods.policy import Policy
from sensorveil.progress import track
from sensorveil.statistics import Estimate
from sensorveil.train import derived_seed

OUTPUTS = 1_000
"""The most obfuscated windows that are compared with training windows, of each model."""

CANDIDATES = 4_000
"""The most windows of which an attacker asks whether they were trained on."""

OUTPUT_DISTANCE = "distance to the nearest output"
"""The score of methods that have none of their own."""

_FEWEST = 4
"""Recordings below which halves say nothing."""

_HALVES_SEED, _MODEL_SEED = 61, 6_200


def audit_donors(
    fold: Fold,
    output: Output,
    models: int = 0,
    strength: Strength | None = None,
    device: str = "cpu",
    store: Store | None = None,
) -> DonorAudit | None:
    """What is revealed about the people whose windows the method learnt from.

    Parameters
    ----------
    fold, output
        The method and the windows, and its output for them.
    models
        Models that are trained for it, 4 or more; 0 trains none and leaves membership out.
    strength
        The strengths to obfuscate with.
    device
        Where distances are computed.
    store
        Where each model's scores are kept, so that an interrupted audit goes on.

    Returns
    -------
    DonorAudit or None
        None where nothing is learnt from windows, or where it is not known from which.

    Examples
    --------
    >>> import sensorveil
    >>> from sensorveil.audit.attackers import Budget
    >>> from sensorveil.audit.threat_models import obfuscate_fold
    >>> split = sensorveil.load("simulated", "recording", people=6, windows=8)
    >>> resample = sensorveil.Resample(epochs=1).fit(split.train, "activity", "gender")
    >>> fold = Fold(resample, split)
    >>> found = audit_donors(fold, obfuscate_fold(fold, None, 0, Budget.quick()))
    >>> found.verdict.status, found.nearness.copies == found.nearness.outputs == len(split.test)
    ('not hidden', True)
    """
    obfuscator = fold.obfuscator
    if obfuscator is None or not obfuscator.capabilities.learns:
        return None
    trained = fold.split.training_windows(obfuscator.origin_)
    shown = thinned_positions(len(output.test), OUTPUTS, 0)
    released = output.test.select(shown)
    copies = count_copies(released, fold.split.test.select(shown), trained, device)
    membership, tables, not_asked = None, [], dict[str, str]()
    if models:
        try:
            halves = Halves.of(trained, fold.policy, models, obfuscator.seed)
            found = [
                (store or Store()).arrays(
                    f"donors, model {number} of {models}",
                    partial(_model, fold, halves, number, shown, strength, device),
                )
                for number in track(range(models), "models for the audit of donors")
            ]
            membership = _membership(obfuscator, halves, [one["scores"] for one in found])
            tables = [(one["nearest"], int(one["compared"])) for one in found]
        except Refusal as refusal:  # too few recordings, or a half lacks a class: the page says so
            not_asked = {"membership": str(refusal), "nearness": str(refusal)}
    else:
        not_asked["membership"] = "a quick audit trains no further models of the method"
        if fold.unseen_people:
            not_asked["nearness"] = (
                "no windows of the training people are fresh, and no further models are trained"
            )
        else:
            keep = fold.policy.keep
            tables = [nearness_table(released, trained, fold.split.test, keep, device)]
    if tables and not tables[0][1]:
        not_asked["nearness"] = (
            "nobody has windows of one kept class both in training and outside of it"
        )
    nearness = nearness_of(tables, len(shown), copies)
    return DonorAudit(judge_donors(nearness, membership), nearness, membership, not_asked)


@dataclass(frozen=True, eq=False)
class Halves:
    """Training windows, and which of them each model is trained on.

    Parameters
    ----------
    windows
        The training windows.
    inside
        Which of them each model is trained on, (models, n).
    asked
        The positions of the windows of which an attacker asks: those whose kept and hidden classes
        are known, or some of them.
    """

    windows: Windows
    inside: np.ndarray
    asked: np.ndarray

    @classmethod
    def of(cls, windows: Windows, policy: Policy, models: int, seed: int) -> Halves:
        """Halves of the recordings, alike in kept classes and people."""
        check_models(models)
        recordings = len(np.unique(windows.recording))
        if recordings < _FEWEST:
            raise Refusal(
                f"{recordings} training recordings are too few to train on halves of them"
            )
        strata = np.stack([windows.joint_codes(policy.keep), windows.subject], axis=1)
        inside = complementary_halves(
            windows.recording, models // 2, derived_seed(seed, _HALVES_SEED), strata
        )
        known = np.flatnonzero(windows.joint_codes([*policy.keep, *policy.hide]) != UNKNOWN)
        return cls(windows, inside, known[thinned_positions(len(known), CANDIDATES, 0)])


def _model(
    fold: Fold,
    halves: Halves,
    number: int,
    shown: np.ndarray,
    strength: Strength | None,
    device: str,
) -> Arrays:
    """Train one model on its half: its score of each window asked, and how near its output lies."""
    assert fold.obfuscator is not None
    seed, inside = derived_seed(fold.obfuscator.seed, _MODEL_SEED + number), halves.inside[number]
    members, others = halves.windows.select(inside), halves.windows.select(~inside)
    policy, asked = fold.policy, halves.windows.select(halves.asked)
    model: Obfuscator = clone(fold.obfuscator).set_params(seed=seed)
    model.fit(members, policy.keep, policy.hide)
    released = obfuscate_some(model, fold.split.test, shown, strength, seed)
    scores = model.membership_scores(asked)
    if scores is None:
        scores = output_scores(asked, released, device)
    nearest_by, compared = nearness_table(released, members, others, policy.keep, device)
    return {"scores": scores, "nearest": nearest_by, "compared": np.array(compared)}


def output_scores(windows: Windows, released: Windows, device: str = "cpu") -> np.ndarray:
    """Minus the logarithm of each window's distance to the nearest window of the output, (n,).

    Examples
    --------
    >>> signal = np.random.default_rng(0).normal(size=(30, 1, 8))
    >>> windows = Windows.from_signal(signal)
    >>> scores = output_scores(windows, windows.select(slice(0, 10)))
    >>> bool(scores[:10].min() > scores[10:].max())
    True
    """
    scaling = Scaling.of(windows)
    standard = windows.standardized(scaling)
    _, distance = nearest(standard, released.standardized(scaling), device)
    least = max(
        copy_tolerance(standard, device), 1e-12
    )  # copies are all alike, whatever the rounding
    return np.asarray(-np.log(np.maximum(distance, least)))


def _membership(obfuscator: Obfuscator, halves: Halves, scores: Sequence[np.ndarray]) -> Membership:
    """The attack on each model, by LiRA where the method has a score of its own."""
    own, models = obfuscator.membership_score, len(scores)
    table = np.stack(
        [one - np.median(one) for one in scores]
    )  # some models fit all a little better
    ratios = likelihood_ratios if own else above_nonmembers
    attacks = attacks_in_turn(table, halves.inside[:, halves.asked], ratios)
    people = len(np.unique(halves.windows.subject))
    finest = [attack.tpr_at_01pct for attack in attacks if attack.tpr_at_01pct is not None]
    return Membership(
        own or OUTPUT_DISTANCE,
        models,
        len(halves.asked),
        over_models([attack.auc for attack in attacks], people),
        over_models([attack.tpr_at_1pct for attack in attacks], people),
        over_models(finest, people) if len(finest) == models else None,
    )


def over_models(rates: Sequence[float], people: int) -> Estimate:
    """The mean rate of several models under attack, with Student's interval over them.

    A model and its pair have windows in common, which makes the interval too wide rather than too narrow.

    >>> print(over_models([0.5, 0.52, 0.48, 0.5], people=12))
    50.0% (47.4 to 52.6)
    """
    count, mean, spread = len(rates), float(np.mean(rates)), float(np.std(rates, ddof=1))
    half = float(student.ppf(0.975, count - 1)) * spread / count**0.5
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half), people, count, spread)
