"""sensorveil compare and sweep: several audits, or several strengths, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from sensorveil.cli import options as given
from sensorveil.cli.audits import print_audit, write_audit
from sensorveil.cli.runs import split_of
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    from sensorveil.audit.results import Audit
    from sensorveil.report.page import Difference

MOST_STRENGTHS = 400


def compare(
    audits: Annotated[list[Path], typer.Argument(help="Folders that 'sensorveil audit' wrote.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write the page to.")],
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Several audits on one page; those of one method on different splits become one audit."""
    from sensorveil.audit.stored import joined, read_audit
    from sensorveil.files import write_json, written_folder
    from sensorveil.report.page import render_comparison

    screen = Screen(quiet, as_json)
    given.check_new(out)
    found = [read_audit(folder) for folder in audits]
    if len(found) < 2:
        raise Refusal("one audit cannot be compared; name two or more")
    kinds = {(audit.dataset, audit.protocol) for audit in found}
    if len(kinds) > 1:
        listed = ", ".join(f"{data} ({protocol})" for data, protocol in sorted(kinds))
        raise Refusal(f"the audits are of different data or protocols: {listed}")
    found = joined(found)
    with written_folder(out) as folder:
        if len(found) == 1:
            write_audit(found[0], folder)
        else:
            page = render_comparison(found, differences(found))
            (folder / "compare.html").write_text(page, "utf-8")
            write_json(folder / "compare.json", [audit.as_dict() for audit in found])
    for audit in found:
        print_audit(screen, audit)
    screen.say(f"The page: {out / ('audit.html' if len(found) == 1 else 'compare.html')}")
    screen.result([audit.as_dict() for audit in found])


def differences(audits: Sequence[Audit]) -> list[Difference]:
    """Paired differences of the worst attacker between methods, on the people of both."""
    from sensorveil.report.page import Difference
    from sensorveil.statistics import paired_difference

    found = []
    for one, other in combinations(audits, 2):
        if (one.main.split, one.main.folds) != (other.main.split, other.main.folds):
            continue  # other people were attacked: no pairs
        seconds = {second.attribute: second.by_person for second in other.main.attributes}
        for first in one.main.attributes:
            by_person = seconds.get(first.attribute, {})
            if first.role == "hide" and len(set(first.by_person) & set(by_person)) > 1:
                gap = paired_difference(first.by_person, by_person)
                found.append(Difference(one.method, other.method, first.attribute, *gap))
    return found


def sweep(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    grid: Annotated[
        str,
        typer.Option("--grid", help="Strengths, as guidance_scale=1:9:1,gender=0,0.1,0.3."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    data: given.Data = "",
    source: given.Source = None,
    option: given.Options = None,
    subset: Annotated[
        str, typer.Option(help="validation (to choose a strength) or test (to report one).")
    ] = "validation",
    seed: given.Seed = 0,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """The trade-off over strengths, without training again, by one quick attacker."""
    import sensorveil
    from sensorveil.audit.evaluation import scorable
    from sensorveil.audit.results import TradeOff
    from sensorveil.audit.sweep import sweep as swept
    from sensorveil.conditions import conditions
    from sensorveil.files import write_json, written_folder
    from sensorveil.report.page import render_sweep

    screen = Screen(quiet, as_json)
    given.check_new(out)
    given.check_among("subset", subset, ("test", "validation"))
    strengths = parse_grid(grid)
    device = given.check_device(device)
    obfuscator = sensorveil.load_run(run, device)
    split = split_of(obfuscator, run, data, source, option)
    left_out = scorable(split)[1]
    for name in (obfuscator.policy_.keep[0], obfuscator.policy_.hide[0]):
        if name in left_out:  # an attacker who cannot be right would look like perfect privacy
            raise Refusal(f"attribute '{name}' cannot be swept on this split: {left_out[name]}")
    if subset == "validation" and obfuscator.origin_ and obfuscator.origin_.subset != "fitting":
        screen.say(
            "This run saw the validation windows in training; fit --subset fitting avoids it."
        )
    with screen.bars():
        found = swept(
            obfuscator, split.fitting, getattr(split, subset), strengths, seed=seed, device=device
        )
    ideal = TradeOff("ideal", found.raw_kept, found.majority_hidden)
    with written_folder(out) as folder:
        content = {**found.as_dict(), "subset": subset, "conditions": conditions(device)}
        write_json(folder / "sweep.json", content)
        title = f"{obfuscator.name}: keep {found.keep}, hide {found.hide} ({subset} windows)"
        (folder / "sweep.html").write_text(
            render_sweep(title, found.points, found.area, ideal), "utf-8"
        )
    rows = [
        (
            ", ".join(f"{name}={value:g}" for name, value in point.strength.items()),
            f"{100 * point.kept:.1f}",
            f"{100 * point.hidden:.1f}",
        )
        for point in found.points
    ]
    screen.table(
        f"{obfuscator.name} on {subset} windows, in %; area under the curve {found.area:.2f}",
        ("strength", f"{found.keep} (keep)", f"{found.hide} (hide)"),
        rows,
    )
    screen.say(f"The page: {out / 'sweep.html'}")
    screen.result(content)


def parse_grid(text: str) -> dict[str, list[float]]:
    """Strengths by name: start:stop:step, or values one after another.

    >>> parse_grid("keep=1:2:0.5,gender=0,0.1")
    {'keep': [1.0, 1.5, 2.0], 'gender': [0.0, 0.1]}
    """
    found: dict[str, list[float]] = {}
    name = ""
    for word in given.names([text]):
        before, equals, after = word.partition("=")
        if equals:
            name = before.strip()
            if not name or name in found:
                raise Refusal(f"the grid names '{name}' twice or not at all")
            found[name] = []
        if not name:
            raise Refusal(f"the grid '{text}' does not start with name=value")
        found[name] += _values((after if equals else word).strip(), name)
    total = int(np.prod([len(values) for values in found.values()], initial=1))
    if not found or total > MOST_STRENGTHS:
        raise Refusal(f"the grid has {total} strengths; give 1 to {MOST_STRENGTHS}")
    return found


def _values(text: str, name: str) -> list[float]:
    numbers = [given.number(part, f"strength '{name}'") for part in text.split(":")]
    if len(numbers) == 1:
        return numbers
    if len(numbers) != 3 or numbers[2] <= 0 or numbers[1] < numbers[0]:
        raise Refusal(f"strength '{name}': '{text}' is not start:stop:step with a step above 0")
    count = int((numbers[1] - numbers[0]) / numbers[2] + 1e-9) + 1
    if count > MOST_STRENGTHS:
        raise Refusal(f"strength '{name}' has {count} values; at most {MOST_STRENGTHS}")
    return [round(numbers[0] + step * numbers[2], 10) for step in range(count)]
