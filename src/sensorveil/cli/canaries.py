"""sensorveil csi canaries: does the noise of a private training hold what the accountant claims?"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from sensorveil.cli import options as given
from sensorveil.cli.making import Phases, Preset, Result, Set, check_out, maker
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal


def canaries(
    out: Result,
    count: Annotated[int, typer.Option("--canaries", help="How many are planted or not.")] = 400,
    guesses: Annotated[int, typer.Option(help="On how many of them something is said.")] = 100,
    data: given.Data = "simulated-csi",
    source: given.Source = None,
    option: given.Options = None,
    keep: Annotated[str, typer.Option("--keep", help="What windows are made of.")] = "activity",
    hide: Annotated[str, typer.Option("--hide", help="What the method hides.")] = "subject",
    phases: Phases = "kept",
    preset: Preset = "fast",
    setting: Set = None,
    seed: given.Seed = 0,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Trains csi once with canaries among its gradients: a lower bound on its epsilon."""
    import sensorveil
    from sensorveil.audit.one_run import GradientCanaries, audit_one_run
    from sensorveil.conditions import conditions
    from sensorveil.data.phases import with_phases
    from sensorveil.files import write_json
    from sensorveil.methods.csi import CsiGenerator

    screen = Screen(quiet, as_json)
    check_out(out, seeds=1)
    obfuscator = maker("csi", preset, setting, given.check_device(device))(seed)
    assert isinstance(obfuscator, CsiGenerator)
    if obfuscator.settings.mode not in ("dp", "hybrid-dp"):
        raise Refusal(f"mode {obfuscator.settings.mode} promises nothing; set mode=dp or hybrid-dp")
    windows = sensorveil.load(data, None, 0, source, **given.data_options(option, data)).train
    windows = with_phases(windows, phases)
    planted = GradientCanaries(count, obfuscator.settings.clip, np.random.default_rng(seed))
    obfuscator.canaries = planted
    with screen.bars():
        found = audit_one_run(
            lambda _: obfuscator.fit(windows, keep, hide),
            planted,
            guesses,
            obfuscator.settings.delta,
        )
    promised = obfuscator.guarantee()
    content = {
        **vars(found),
        "privacy": promised.as_dict(),
        "settings": vars(obfuscator.settings),
        "data": data,
        "conditions": conditions(device),
    }
    write_json(out, content)
    screen.say(f"The run says: {promised}")
    screen.say(
        f"{found.right} of {found.guesses} guesses on {found.canaries} canaries were right:"
        f" epsilon is above {found.bound:.2f}, with 95% confidence."
    )
    if promised.epsilon is not None and found.bound > promised.epsilon:
        screen.say("The claim is REFUTED: too little noise was added, or too much was not clipped.")
    screen.result(content)
