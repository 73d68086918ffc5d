"""The tables of a result: one way to write them, for the terminal and for the pages.

A result is what a file of `results/` holds. Accuracies are in percent, with intervals over people and
seeds in brackets. In results, `read` stands for convolutional classifiers that were trained on raw
windows, and `read_dense` for dense ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorveil.cli.screen import Screen

Content = Mapping[str, Any]

BOTH = "accuracy in % of convolutional / dense classifiers of raw windows"


@dataclass(frozen=True)
class Table:
    """A title, names of columns, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def print_tables(screen: Screen, found: Content) -> None:
    """Print the tables of a result."""
    for one in tables_of(found):
        screen.table(one.title, one.columns, list(one.rows))


def print_points(screen: Screen, found: Content) -> None:
    """Print the tables of a federated experiment, and the rates that it chose."""
    print_tables(screen, found)
    if "chosen" in found:
        best = {name: one["rate"] for name, one in found["chosen"].items() if name != "rule"}
        screen.say(f"Rates: {best}, by {found['chosen']['rule']}.")


def tables_of(found: Content) -> list[Table]:
    """All tables of a result that have rows.

    >>> tables_of({"members": 96, "auc": 0.66})[0].rows
    (('96', '0.66'),)
    """
    kinds: dict[str, Callable[[Content], Iterator[Table]]] = {
        "tables": _ready,
        "splits": _audit,
        "policy": _evaluation,
        "means": _donors,
        "experiment": _federated,
        "gain": _gains,
        "part": _part,
    }
    write = next((write for key, write in kinds.items() if key in found), _others)
    return [one for one in write(found) if one.columns]


def _ready(found: Content) -> Iterator[Table]:
    """Tables that the result itself holds."""
    return (table(title, rows) for title, rows in found["tables"].items())


def table(title: str, entries: Sequence[Content]) -> Table:
    """A row for each entry and a column for each figure that some entry has.

    Nested figures have names that say where they stood. One long entry stands upright.

    >>> table("sizes", [{"method": "a", "networks": {"decoder_size": 3}}, {"method": "b"}])
    Table(title='sizes', columns=('method', 'networks, decoder size'), rows=(('a', '3'), ('b', '')))
    """
    rows = [_flat(entry) for entry in entries]
    if len(rows) == 1 and len(rows[0]) > 8:
        return Table(title, ("figure", "value"), tuple(rows[0].items()))
    columns = tuple(dict.fromkeys(name for row in rows for name, cell in row.items() if cell))
    return Table(title, columns, tuple(tuple(row.get(c, "") for c in columns) for row in rows))


def percent(estimate: Any) -> str:
    """A share or an estimate in percent, with its interval where it has one.

    >>> percent({"value": 0.941, "low": 0.92, "high": 0.95}), percent(0.5), percent(None)
    ('94.1 (92.0 to 95.0)', '50.0', '')
    """
    if estimate is None:
        return ""
    if not isinstance(estimate, Mapping):
        return f"{100 * estimate:.1f}"
    value, low, high = (f"{100 * estimate[name]:.1f}" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _flat(entry: Content, before: str = "") -> dict[str, str]:
    cells: dict[str, str] = {}
    for key, value in entry.items():
        name = before + str(key).replace("_", " ")
        if isinstance(value, Mapping) and "value" not in value:
            cells |= _flat(value, f"{name}, ")
        else:
            cells[name] = _plain(value)
    return cells


def _plain(value: Any) -> str:
    """Any value, in short: four digits of a number, an estimate with its interval."""
    if isinstance(value, Mapping):
        return f"{_plain(value['value'])} ({_plain(value['low'])} to {_plain(value['high'])})"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_plain(one) for one in value)
    return "" if value is None else str(value)


def _without(entry: Content, *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


# Parts of a recipe.


def _part(found: Content) -> Iterator[Table]:
    entries = [*found.get("rows", []), *found.get("points", [])]
    first = entries[0] if entries else {}
    if "gain" in first:
        yield from _gains(found)
    elif "label" in first:
        yield from _accuracies(found)
    elif "read" in first:
        raw = [{"settings": {"raw windows": ""}, **found["raw"]}] if "raw" in found else []
        yield table(f"{found['part']}: {BOTH}", [_compared(one) for one in (*raw, *entries)])
    elif "hidden" in first:
        rows = [row for one in entries for row in _attackers(one)]
        yield table("what attackers find in validation windows, in %", rows)
    else:
        yield from _others(found)


def _accuracies(found: Content) -> Iterator[Table]:
    """The papers' tables: every method and attribute, beside the paper's figures."""
    raw = [{"label": "raw data", **found["raw"]}] if "raw" in found else []
    rows, again = [], []
    for entry in (*raw, *found["rows"]):
        paper = entry.get("paper", {})
        for name, score in entry["read"].items():
            dense, tuned = (entry.get(kind, {}).get(name, {}) for kind in ("read_dense", "tuned"))
            cells = {"method": entry["label"], "attribute": name, "paper": paper.get(name)}
            cells |= {"accuracy": percent(score["accuracy"])}
            cells |= {"dense classifier": percent(dense.get("accuracy"))}
            cells |= {"tuned classifier": percent(tuned.get("accuracy"))}
            rows.append({**cells, "F1, paper": paper.get(f"{name}_f1"), "F1": percent(score["f1"])})
        for one in entry.get("reidentification", ()):
            figure = paper.get(f"{one['attribute']}_reidentified")
            again.append({"method": entry["label"], **one, "paper, in %": figure})
    yield table(f"{found['title']}, in %", rows)
    yield table("re-identification by models that learn from a fifth of the output", again)
    for entry in raw:
        shown = [name for one in entry["read"] for name in (one, f"{one}_f1")]
        yield table("other figures of the paper", [_without(entry.get("paper", {}), *shown)])


def _compared(entry: Content) -> dict[str, Any]:
    """One setting or strength: scores, and what was measured beside them."""
    cells = {"settings": _description(entry)}
    for name, score in entry["read"].items():
        dense = entry.get("read_dense", {}).get(name)
        cells[name] = percent(score["accuracy"]) + (f" / {percent(_value(dense))}" if dense else "")
    for name, score in entry.get("retrained", {}).items():
        cells[f"{name}, retrained"] = percent(score["accuracy"])
    if "seconds_a_window" in entry:
        cells["ms a window"] = _plain(1e3 * entry["seconds_a_window"])
    for name, kinds in entry.get("read_as", {}).items():
        for label in kinds["read"]:
            both = (percent(kinds[kind][label]) for kind in ("read", "read_dense"))
            cells[f"predicted {name} {label}"] = " / ".join(both)
    return cells


def _description(entry: Content) -> str:
    settings = entry.get("settings")
    if settings is None:
        settings = {k: v for k, v in entry.items() if not isinstance(v, Mapping | list)}
    return ", ".join(f"{k} {_plain(v)}".strip() for k, v in settings.items()) or "as they are"


def _value(score: Any) -> float:
    return float(score["accuracy"]["value"] if isinstance(score, Mapping) else score)


def _attackers(entry: Content) -> Iterator[dict[str, Any]]:
    """The best of those who see the output alone, and of the fully informed."""
    for name, hidden in entry["hidden"].items():
        for informed in (False, True):
            attacks = [
                one
                for one in hidden["attacks"]
                if one["threat_model"] != "raw"
                and (one["threat_model"] == "fully informed") == informed
            ]
            if attacks:
                yield {
                    "settings": _description(entry),
                    "kept, raw": percent(entry["kept"]["raw"]),
                    "kept": percent(entry["kept"]["unchanged"]),
                    "hidden": name,
                    "majority": percent(hidden["majority"]),
                    "by kept class": percent(hidden["by kept class"]),
                    "attackers": "fully informed" if informed else "see the output alone",
                    "best": percent(max(one["accuracy"] for one in attacks)),
                    "AUC": f"{max(one['auc'] for one in attacks):.3f}",
                    "verdict": hidden["verdict"],
                }


_HEAD = ("format", "kind", "recipe", "title", "part", "preset", "seeds", "data", "inference")


def _others(found: Content) -> Iterator[Table]:
    """Figures without a form of their own: sizes, seconds, bits."""
    title = str(found.get("part", found.get("name", "figures"))).replace("_", " ")
    several = ("rows", "points", "seeds_bits")
    yield table(title, [_without(found, *_HEAD, *several, "conditions", "paper", "settings")])
    entries = [*found.get("rows", []), *found.get("points", [])]
    yield table(title, [_mean_bits(entry) for entry in entries])
    epochs = [
        {"seed": seed, "epoch": epoch + 1, **bits}
        for seed, each in zip(found.get("seeds", ()), found.get("seeds_bits", ()), strict=False)
        for epoch, bits in enumerate(each)
    ]
    yield table(f"{title}: bits", epochs)
    yield table("figures of the paper", [found.get("paper", {})])


def _mean_bits(entry: Content) -> dict[str, Any]:
    bits = {name: float(np.mean(each)) for name, each in entry.get("bits", {}).items()}
    return {**_without(entry, "bits"), "bits": bits}


# Evaluations, CSI studies, federated experiments.


def _evaluation(found: Content) -> Iterator[Table]:
    figures = {"majority": "majority", "raw": "raw_accuracy", "obfuscated": "accuracy"}
    figures |= {"raw, F1": "raw_f1", "F1": "f1"}
    rows = [
        {
            "attribute": one["attribute"],
            "role": one["role"],
            **{column: percent(one[figure]) for column, figure in figures.items()},
        }
        for one in found["scores"]
    ]
    yield table("accuracy of classifiers of raw windows, in %", rows)
    yield table("signal, a row for each fold", found.get("signal", []))


def _donors(found: Content) -> Iterator[Table]:
    paper = found["paper_on_widar3"]
    rows = [
        {
            "windows": name,
            "figure": figure.replace("_", " "),
            "mean": mean,
            "deviation over seeds": deviation,
            "paper, on Widar3.0": f"[{paper[name][figure]}]"
            if figure in paper.get(name, ())
            else "",
        }
        for name, figures in found["means"].items()
        for figure, (mean, deviation) in figures.items()
    ]
    yield table("attacks on those whose windows were given, and how good the windows are", rows)
    private = [
        {"windows": one["contender"], "seed": one["seed"], **one["privacy"]}
        for one in found["scores"]
        if (one.get("privacy") or {}).get("epsilon")
    ]
    yield table("differential privacy", private)


def _gains(found: Content) -> Iterator[Table]:
    rows = [
        {
            "attribute": one["attribute"],
            "generated by": one["label"],
            "real alone": percent(one["real"]),
            "real and generated": percent(one["mixed"]),
            "gain": percent(one["gain"]),
        }
        for one in found.get("rows") or [{"label": found["asked"]["method"], **found}]
    ]
    yield table("accuracy of classifiers, in %", rows)
    paper = [{"paper, on Widar3.0": k, **v} for k, v in found["paper_on_widar3"].items()]
    yield table("accuracies of the paper", paper)


_RUN = ("plan", "read", "read_dense", "seed", "bytes", "rounds", "people")
_LONG = ("discriminators", "information", "adapted")


def _federated(found: Content) -> Iterator[Table]:
    """Means over seeds, and the lowest and the highest of several."""
    groups: dict[str, list[Content]] = defaultdict(list)
    rows: list[Content] = []
    for point in found["points"]:
        name = _description(_without(point, *_RUN, *_LONG))
        if "failed" in point:
            rows.append({"point": name})
        else:
            groups[name].append(point)
    rows.append({"point": "raw data", "seeds": len(found["raw"]), **_over_seeds(found["raw"])})
    for name, points in groups.items():
        sizes = {"GB": f"{points[0]['bytes'] / 1e9:.1f}", "people": points[0]["people"]}
        rows.append({"point": name, "seeds": len(points), **sizes, **_over_seeds(points)})
    yield table(f"{found['experiment']}: {BOTH}; (lowest to highest)", rows)
    yield table("figures of the paper", [found.get("paper", {})])
    yield table("first and last epoch", [*_over_epochs(groups)])
    adapted = [
        {"point": name, "personalisation": when, **_over_seeds([one[when] for one in new])}
        for name, points in groups.items()
        if (new := [one for point in points for one in point.get("adapted", ())])
        for when in ("before", "after")
    ]
    yield table(f"people who took no part: {BOTH}", adapted)
    yield table("chosen", [found.get("chosen", {})])


def _over_seeds(points: Sequence[Content]) -> dict[str, str]:
    cells = {}
    for name in points[0]["read"]:
        both = []
        for kind in ("read", "read_dense"):
            each = [_value(point[kind][name]) for point in points]
            ends = {"value": np.mean(each), "low": min(each), "high": max(each)}
            both.append(percent(ends if len(each) > 1 else each[0]))
        cells[name] = " / ".join(both)
    return cells


def _over_epochs(groups: Mapping[str, Sequence[Content]]) -> Iterator[dict[str, Any]]:
    """Losses and bits after the first and the last epoch."""
    for name, points in groups.items():
        for point in points:
            for what in ("discriminators", "information"):
                for epoch in (1, len(point[what])) if what in point else ():
                    entry = point[what][epoch - 1]
                    values = entry if isinstance(entry, Mapping) else {"loss": entry}
                    yield {"point": name, "figure": what, "epoch": epoch, **values}


# Audits.


def _audit(found: Content) -> Iterator[Table]:
    for split in found["splits"]:
        of = f"split {split['split']}, {split['test_people']} people"
        names = ("majority", "raw", "unchanged", "retrained", "retrained_on_raw")
        kept = [
            {"kept": one["attribute"], **{name: percent(one.get(name)) for name in names}}
            for one in split["kept"]
        ]
        yield table(f"accuracy of applications, in % ({of})", kept)
        hidden = [_hidden(one) for one in split["attributes"]]
        yield table(f"accuracy of attackers, in % ({of})", hidden)
        best = [_by_threat_model(one) for one in split["attributes"]]
        yield table("best accuracy by threat model, in %", best)
        sessions = [
            {"attribute": one["attribute"], **_without(session, "significant")}
            for one in split["attributes"]
            for session in one["sessions"]
            if session["significant"]
        ]
        yield table("sessions above the majority baseline, in shares", sessions)
        for name in ("linkage", "reidentification", "information", "condition_probes", "trade_off"):
            yield table(name.replace("_", " "), split.get(name) or [])
        bounds = [one["bound"] for one in split["attributes"] if one.get("bound")]
        yield table("bounds", bounds)
        yield table("signal", [split["signal"] or {}])


def _by_threat_model(one: Content) -> dict[str, Any]:
    best: dict[str, float] = {}
    for attack in one["attacks"]:
        name = attack["threat_model"]
        best[name] = max(best.get(name, 0.0), attack["accuracy"]["value"])
    return {"attribute": one["attribute"], **{name: percent(value) for name, value in best.items()}}


def _hidden(one: Content) -> dict[str, Any]:
    attacks = [a for a in one["attacks"] if a["threat_model"] not in ("raw", "control")]
    raw = [a["accuracy"]["value"] for a in one["attacks"] if a["threat_model"] == "raw"]
    worst = one["worst"]
    return {
        "attribute": one["attribute"],
        "role": one["role"],
        "raw": percent(max(raw, default=None)),
        "majority": percent(one["majority"]),
        "best attacker": percent(worst["accuracy"]),
        "who": f"{worst['threat_model']}, {worst['attacker']}",
        "AUC": f"{max(a['auc']['value'] for a in attacks):.2f}",
        "verdict": one["verdict"]["status"],
    }
