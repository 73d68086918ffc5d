"""sensorveil audit: attackers on a run's output, and a page that a person can read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sensorveil.cli import options as given
from sensorveil.cli.runs import load_parts
from sensorveil.cli.screen import Screen
from sensorveil.errors import Refusal
from sensorveil.files import check_place, check_replaceable

if TYPE_CHECKING:
    from sensorveil.audit.audit import AuditSettings
    from sensorveil.audit.results import Audit, SplitAudit
    from sensorveil.data.splits import Split
    from sensorveil.data.windows import Windows
    from sensorveil.methods.base import Obfuscator

Part = tuple[list["Obfuscator"], list["Split"]]


def audit(
    out: Annotated[
        Path, typer.Option("--out", help="The folder to write audit.json and the page.")
    ],
    run: Annotated[
        list[Path] | None, typer.Argument(help="A run folder; several are folds to pool.")
    ] = None,
    data: given.Data = "",
    source: given.Source = None,
    option: given.Options = None,
    original: Annotated[
        Path | None, typer.Option(help="In place of a run: the .toml of a table of raw recordings.")
    ] = None,
    obfuscated: Annotated[
        Path | None, typer.Option(help="The .toml of the same table, obfuscated by anything.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Without a run: attributes to keep.")
    ] = None,
    hide: Annotated[
        list[str] | None, typer.Option(help="Without a run: attributes to hide.")
    ] = None,
    train_original: Annotated[
        Path | None, given.Rare(help="A raw table for attackers to learn from.")
    ] = None,
    train_obfuscated: Annotated[Path | None, given.Rare(help="The same table, obfuscated.")] = None,
    quick: given.Quick = False,
    second_split: Annotated[
        str, given.Rare(help="A second split, trained anew and shown too; 'none' for no second.")
    ] = "",
    shadow_run: Annotated[
        list[Path] | None,
        given.Rare(
            help="A run like the audited one with another seed, for lazy attackers; trained if"
            " not given and not quick."
        ),
    ] = None,
    strength: given.Strength = None,
    seeds: Annotated[int, typer.Option(help="Seeds; 0 means one if quick, else three.")] = 0,
    max_advantage: Annotated[
        float | None,
        typer.Option(help="Exit with 1 if an attacker beats the majority by more (0.05)."),
    ] = None,
    examples: Annotated[
        int, given.Rare(help="Windows to show before and after; 0 keeps data out of the result.")
    ] = 3,
    device: given.Device = "cpu",
    quiet: given.Quiet = False,
    as_json: given.AsJson = False,
) -> None:
    """Runs attackers on a run's output, or on any obfuscated table, and writes a page.

    An audit that was stopped goes on when the same command is given again; until it is done, what
    it has lies beside the result, in a folder that ends in '.unfinished'.
    """
    from sensorveil.audit.audit import AuditSettings
    from sensorveil.audit.results import INCONCLUSIVE
    from sensorveil.conditions import conditions
    from sensorveil.files import written_folder

    screen = Screen(quiet, as_json)
    check_place(out)
    check_replaceable(out, {"audit.json", "audit.html"}, "audit")
    strengths = given.numbers(strength, "strength")
    if seeds < 0:
        raise Refusal(f"--seeds is {seeds}; give 1 or more")
    if not 0 <= examples <= 20:
        raise Refusal(f"--examples is {examples}; give 0 to 20")
    if max_advantage is not None and not 0 <= max_advantage <= 1:
        raise Refusal(f"--max-advantage is {max_advantage}; give a share between 0 and 1")
    device = given.check_device(device)
    settings = AuditSettings.for_two_cores() if quick else AuditSettings()
    settings = replace(settings, examples=examples)
    if seeds:
        settings = replace(settings, seeds=tuple(range(seeds)))
    unfinished = out.with_name(f"{out.name}.unfinished")
    with screen.bars():
        if original or obfuscated:
            if run or not (original and obfuscated):
                raise Refusal("give a run, or both --original and --obfuscated")
            training = (train_original, train_obfuscated)
            found = _audit_tables(
                (original, obfuscated), training, keep, hide, settings, device, unfinished
            )
        else:
            if not run:
                raise Refusal("give a run folder, or --original and --obfuscated")
            if keep or hide:
                raise Refusal("--keep and --hide are those of the run; leave them out")
            obfuscators, splits = load_parts(run, device, data, source, option)
            again = second_split, data, source, option
            found = _audit_runs(
                obfuscators, splits, again, shadow_run, settings, strengths, device, unfinished
            )
    found = replace(found, conditions=conditions(device))
    with written_folder(out, replace=True) as folder:
        write_audit(found, folder)
    shutil.rmtree(unfinished, ignore_errors=True)
    print_audit(screen, found)
    screen.say(f"The page: {out / 'audit.html'}")
    screen.result(found.as_dict())
    if max_advantage is not None and (
        found.verdict().status == INCONCLUSIVE or not found.worst_advantage() <= max_advantage
    ):
        raise typer.Exit(1)  # an inconclusive audit does not pass


def _audit_runs(
    obfuscators: list[Obfuscator],
    splits: list[Split],
    again: tuple[str, str, Path | None, list[str] | None],
    shadow_run: list[Path] | None,
    settings: AuditSettings,
    strengths: dict[str, float],
    device: str,
    unfinished: Path,
) -> Audit:
    import sensorveil
    from sensorveil.audit.audit import audit_runs
    from sensorveil.audit.threat_models import check_shadows

    others = [sensorveil.load_run(place, device) for place in shadow_run or ()]
    check_shadows(obfuscators, others)
    parts: list[Part] = [(obfuscators, splits)]
    asked, data, source, option = again
    second = _second_split(asked, settings.quick, splits[0])
    if second:
        parts.append(_retrained(obfuscators[0], second, data, source, option))
    return audit_runs(parts, settings, strengths, device, others, unfinished)


def _audit_tables(
    tables: tuple[Path, Path],
    training: tuple[Path | None, Path | None],
    keep: list[str] | None,
    hide: list[str] | None,
    settings: AuditSettings,
    device: str,
    unfinished: Path,
) -> Audit:
    from sensorveil.audit.given import audit_windows, lined_up
    from sensorveil.data.catalog import load_whole

    def windows(place: Path) -> Windows:
        return load_whole(str(place))[0]

    original, obfuscated = map(windows, tables)
    train, learnt = (windows(place) if place else None for place in training)
    return audit_windows(
        original,
        lined_up(original, obfuscated),
        given.names(keep),
        given.names(hide),
        train_original=train,
        train_obfuscated=lined_up(train, learnt) if train and learnt else learnt,
        settings=settings,
        device=device,
        folder=unfinished,
    )


def write_audit(audit: Audit, folder: Path) -> None:
    """audit.json, and the page that is drawn from it."""
    from sensorveil.files import write_json
    from sensorveil.report.page import write_page

    write_json(folder / "audit.json", audit.as_dict())
    write_page(audit, folder / "audit.html")


def print_audit(screen: Screen, audit: Audit) -> None:
    """The verdict, from whom, and one table for each split, in the words of the page."""
    from sensorveil.report import text, verdicts
    from sensorveil.report.findings import findings

    found = findings(audit)
    screen.say(verdicts.headline(found))
    for finding in found:
        name = text.capital(text.spoken(finding.attribute))
        why = verdicts.why_inconclusive(finding)
        if why:
            screen.say(f"{name}: {why}")
        for one in verdicts.from_whom(finding):
            screen.say(f"{name}, {one.scope}: {one.said}")
    for split in audit.splits:
        if split.donors:
            screen.say(verdicts.donor_sentence(split.donors))
    for split in audit.splits:
        screen.say(f"Split {split.split}, {text.people_of(split.unseen_people)}:")
        for kept in split.kept:
            screen.say(text.kept_sentence(kept))
        columns = ("attribute", "majority", "raw", "windows", "AUC", "sessions", "verdict")
        screen.table("", columns, _rows(split))
    for name in audit.gaps:
        screen.say(text.gap_sentence(audit, name))


def _rows(split: SplitAudit) -> list[tuple[str, ...]]:
    """The best accuracies of attackers: on raw windows, on the output, on several windows of it."""
    from sensorveil.report.findings import highest_auc, raw_attack, stands_out
    from sensorveil.report.numbers import UNKNOWN, decimals, percent

    rows: list[tuple[str, ...]] = []
    for found in split.attributes:
        raw, point = raw_attack(found), stands_out(found.sessions)
        sessions = UNKNOWN if point is None else "no leak"
        if point and point.significant:
            sessions = percent(point.accuracy.value)
        rows.append(
            (
                f"{found.attribute} ({found.role})",
                percent(found.majority),
                percent(raw.accuracy.value) if raw else UNKNOWN,
                percent(found.worst.accuracy.value),
                decimals(highest_auc(found).auc.value),
                sessions,
                found.verdict.status,
            )
        )
    if split.identity:
        link = max(split.linkage, key=lambda link: link.advantage)
        rows.append(
            (
                "linkage of sessions",
                percent(link.rank1_chance),
                percent(link.raw_rank1.value),
                UNKNOWN,
                UNKNOWN,
                f"{percent(link.rank1.value)} rank 1",
                split.identity.status,
            )
        )
    return rows


def _second_split(asked: str, quick: bool, split: Split) -> str:
    """The second split: people never seen by default, unless it is quick or they are the first."""
    from sensorveil.data.catalog import dataset, list_datasets

    origin = split.test.origin
    own, data = (origin.split, origin.dataset) if origin else ("", "")
    if asked:
        return "" if asked in ("none", own) else asked
    if quick or own == "subject" or data not in list_datasets():  # a user's table may lack it
        return ""
    return "subject" if "subject" in dataset(data).protocol().splits else ""


def _retrained(
    obfuscator: Obfuscator,
    split: str,
    data: str,
    source: Path | None,
    option: list[str] | None,
) -> Part:
    """The same method and settings, trained on every fold of another split."""
    import sensorveil

    name = data or (obfuscator.origin_.dataset if obfuscator.origin_ else "")
    obfuscators, splits = [], []
    for fold in range(sensorveil.data.folds(name, split, source)):
        parts = sensorveil.load(name, split, fold, source, **given.data_options(option, name))
        again = type(obfuscator)(
            obfuscator.preset, obfuscator.seed, obfuscator.device, **obfuscator.about()
        )
        learnt = parts.training_windows(obfuscator.origin_)
        obfuscators.append(again.fit(learnt, obfuscator.policy_.keep, obfuscator.policy_.hide))
        splits.append(parts)
    return obfuscators, splits
