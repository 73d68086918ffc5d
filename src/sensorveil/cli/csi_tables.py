"""The tables of the CSI paper's studies, as the command line prints them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sensorveil.cli.screen import Screen

if TYPE_CHECKING:
    from sensorveil.audit.augmentation import Augmentation
    from sensorveil.audit.donors import DonorStudy

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


def write_gain(screen: Screen, out: Path, found: Augmentation, content: dict[str, Any]) -> None:
    """Write the result of `augment` and print it."""
    from sensorveil.files import write_json

    write_json(out, content)
    people, seeds, data = found.real.people, found.real.seeds, content["asked"]["data"]
    screen.table(
        f"{found.attribute} of {data}, accuracy over {people} people, seeds: {seeds}",
        ("trained on", "accuracy"),
        [
            ("real windows", str(found.real)),
            ("and as many generated ones", str(found.mixed)),
            ("gain", str(found.gain)),
        ],
    )
    screen.result(content)


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
