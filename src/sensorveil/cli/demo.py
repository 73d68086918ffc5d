"""sensorveil demo: the main job, end to end, on real data that comes with the install."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sensorveil.cli.options import AsJson, Quiet, Seed
from sensorveil.cli.runs import print_evaluation
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Hides which arm wears the watch, keeps the exercise, and scores the result."""
    import sensorveil
    from sensorveil.audit.evaluation import evaluate
    from sensorveil.conditions import conditions
    from sensorveil.files import check_place, write_json, written_folder
    from sensorveil.measures.inference import InferenceSettings

    screen = Screen(quiet, as_json)
    check_place(out)
    if out.exists() and (not out.is_dir() or not (out / "demo.json").exists()):
        raise Refusal(f"{out} exists already and is no demo; choose another --out")
    screen.say("Ten people do seven shoulder exercises with a watch on one wrist (dataset watch).")
    screen.say(
        "The application needs the exercise; the arm tells which shoulder is treated: private."
    )
    windows = sensorveil.load("watch")
    veil = sensorveil.Resample(seed=seed)
    with screen.bars():
        veil.fit(windows.train, keep="exercise", hide="side")
        hidden = veil.obfuscate(windows.test, seed=seed)
        result = evaluate(veil, windows, seeds=(seed,), settings=InferenceSettings.quick())
    content = {**result.as_dict(), "conditions": conditions()}
    content["data"] = [asdict(windows.test.origin)] if windows.test.origin else []
    with written_folder(out, replace=True) as folder:
        sensorveil.save_run(veil, folder / "run")
        hidden.save(folder / "hidden.npz")
        write_json(folder / "demo.json", content)
    print_evaluation(screen, result)
    side, exercise = result.score("side"), result.score("exercise")
    screen.say(
        f"A model trained on raw data reads the arm in {side.raw_accuracy.value:.0%} of raw windows"
        f" and in {side.accuracy.value:.0%} after obfuscation (guessing: {side.majority:.0%});"
        f" the exercise in {exercise.raw_accuracy.value:.0%} and {exercise.accuracy.value:.0%}."
    )
    screen.say("An attacker who retrains on obfuscated data is not part of this figure yet.")
    screen.say(f"Written: {out}/run, {out}/hidden.npz, {out}/demo.json")
    screen.result(content)
