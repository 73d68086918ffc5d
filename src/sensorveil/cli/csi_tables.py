"""The tables of the CSI paper's studies, as the command line prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sensorveil.cli.screen import Screen

if TYPE_CHECKING:
    from sensorveil.audit.donors import DonorStudy
    from sensorveil.audit.donors.augmentation import Augmentation
    from sensorveil.audit.donors.membership import MembershipAttack
    from sensorveil.audit.donors.one_run import OneRunAudit
    from sensorveil.methods.guarantee import Guarantee

SHADOW = {
    "auc": "attack AUC",
    "success_rate": "ASR",
    "tpr_at_1pct": "TPR at 1%",
    "ssim": "SSIM",
    "fid": "FID",
}
LIRA = {
    "lira_classifier_auc": "AUC, classifier",
    "lira_classifier_tpr_at_1pct": "TPR at 1%",
    "lira_generator_auc": "AUC, generator",
    "lira_generator_tpr_at_1pct": "TPR at 1%",
}
"""The figures of both tables of a donor study, each with its title."""


def print_gain(screen: Screen, found: Augmentation, data: str) -> None:
    """The accuracies with and without generated windows."""
    people, seeds = found.real.people, found.real.seeds
    screen.table(
        f"{found.attribute} of {data}, accuracy over {people} people, seeds: {seeds}",
        ("trained on", "accuracy"),
        [
            ("real windows", str(found.real)),
            ("and as many generated ones", str(found.mixed)),
            ("gain", str(found.gain)),
        ],
    )


def print_attack(screen: Screen, attack: MembershipAttack, of: str, shadows: int) -> None:
    """The members that LiRA found."""
    rare = "too few nonmembers" if attack.tpr_at_01pct is None else f"{attack.tpr_at_01pct:.1%}"
    shares = (f"{attack.success_rate:.1%}", f"{attack.tpr_at_1pct:.1%}", rare)
    screen.table(
        f"LiRA with {shadows} shadow models on {attack.members} members and"
        f" {attack.nonmembers} nonmembers",
        ("attacked", "AUC", "right", "TPR at 1%", "TPR at 0.1%"),
        [(of, f"{attack.auc:.3f}", *shares)],
    )


def print_canaries(screen: Screen, found: OneRunAudit, guarantee: Guarantee) -> None:
    """The lower bound on epsilon, beside the run's own claim."""
    screen.say(f"The run says: {guarantee}")
    screen.say(
        f"{found.right} of {found.guesses} guesses on {found.canaries} canaries were right:"
        f" epsilon is above {found.bound:.2f}, with 95% confidence."
    )
    if guarantee.epsilon is not None and found.bound > guarantee.epsilon:
        screen.say("The claim is REFUTED: too little noise was added, or too much was not clipped.")


def print_study(screen: Screen, study: DonorStudy, data: str) -> None:
    """The tables of a donor study, with the paper's figures in brackets where it has them."""
    for attack, figures in (("by the shadow attack", SHADOW), ("by LiRA", LIRA)):
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
    for figure, holds in study.orders().items():
        verb = "holds" if holds else "does not hold"
        screen.say(f"The paper's order of {SHADOW[figure]} {verb}.")
        for step in study.steps(figure):
            error = "" if step.error is None else f" (standard error {step.error:.3f})"
            screen.say(f"  {step.above} less {step.below}: {step.difference:+.3f}{error}")


def _cell(study: DonorStudy, contender: str, figure: str) -> str:
    from sensorveil.audit.donors import PAPER

    found = study.mean(contender, figure)
    if found is None:
        return "-"
    mean, spread = found
    printed = PAPER.get(contender, {}).get(figure)
    paper = f" [{printed:g}]" if printed else ""
    return f"{mean:.2f}" + (f" ± {spread:.2f}" if spread is not None else "") + paper
