"""sensorveil demo: the main job, end to end, on real data that comes with the install."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sensorveil.cli.audits import print_audit, write_audit
from sensorveil.cli.options import AsJson, Quiet, Seed
from sensorveil.cli.screen import Screen


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Hides which arm wears the watch, keeps the exercise, and has attackers check the result."""
    import sensorveil
    from sensorveil.conditions import conditions
    from sensorveil.files import check_place, check_replaceable, written_folder

    screen = Screen(quiet, as_json)
    check_place(out)
    check_replaceable(out, {"run", "hidden.npz", "audit.json", "audit.html"}, "demo")
    screen.say("Ten people do seven shoulder exercises with a watch on one wrist (dataset watch).")
    screen.say("The application needs the exercise. The arm is private: it is the treated one.")
    screen.say(
        "Seal predicts the exercise, ranks rhythm, energy and sharpness in the wearer's own past,"
        " and gives out a generated window of the same exercise and ranks."
    )
    windows = sensorveil.load("watch")
    obfuscator = sensorveil.Seal(seed=seed)
    with screen.bars():
        obfuscator.fit(windows.train, keep="exercise", hide="side")
        hidden = obfuscator.obfuscate(windows.test, seed=seed)
        found = obfuscator.audit(windows)
    found = replace(found, conditions=conditions())
    with written_folder(out, replace=True) as folder:
        sensorveil.save_run(obfuscator, folder / "run")
        hidden.save(folder / "hidden.npz")
        write_audit(found, folder)
    print_audit(screen, found)
    screen.say(f"Look at the page: {out}/audit.html")
    screen.say(f"Also written: {out}/audit.json, {out}/hidden.npz, {out}/run")
    screen.result(found.as_dict())
