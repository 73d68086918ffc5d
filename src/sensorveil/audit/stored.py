"""Audits on disk: read back as they were written, and joined where they belong together."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from sensorveil.audit.results import FORMAT, Audit, SplitAudit
from sensorveil.errors import Refusal
from sensorveil.files import read_json

FILE = "audit.json"


def read_audit(folder: Path) -> Audit:
    """The audit in a folder that `sensorveil audit` wrote."""
    place = folder / FILE if folder.is_dir() else folder
    content = read_json(place)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Refusal(f"{place} is no audit of format {FORMAT}; make it anew")
    try:
        found: Audit = _decoded(Audit, content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refusal(f"{place} is damaged ({error}); make it anew") from None
    return found


def joined(audits: Sequence[Audit]) -> list[Audit]:
    """Audits of one method, policy and dataset on different splits become one, unseen first."""
    groups: dict[tuple[Any, ...], list[Audit]] = {}
    for audit in audits:
        strength = tuple(sorted(audit.strength.items()))
        run = json.dumps(dict(audit.run), sort_keys=True)
        key = (audit.method, audit.keep, audit.hide, audit.dataset, audit.protocol, strength, run)
        groups.setdefault(key, []).append(audit)
    found = []
    for group in groups.values():
        splits = [part.split for audit in group for part in audit.parts]
        found += group if len(set(splits)) < len(splits) else [_one(group)]
    return found


def gaps(parts: Sequence[SplitAudit], hide: Sequence[str]) -> dict[str, float]:
    """How much more the worst attacker reads on the second split than on the first."""
    if len(parts) < 2:
        return {}
    found = {}
    for name in hide:
        each = [[a for a in part.attributes if a.attribute == name] for part in parts[:2]]
        if all(each):
            found[name] = each[1][0].worst.accuracy.value - each[0][0].worst.accuracy.value
    return found


def _one(group: Sequence[Audit]) -> Audit:
    parts = sorted((p for a in group for p in a.parts), key=lambda part: not part.unseen_people)
    commands = "; ".join(str(a.conditions.get("command", "")) for a in group)
    return replace(
        group[0],
        parts=tuple(parts),
        gaps=gaps(parts, group[0].hide),
        quick=any(audit.quick for audit in group),
        conditions={**group[0].conditions, "command": commands},
    )


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


def _decoded(kind: Any, value: Any) -> Any:
    """A value of JSON as the type that the dataclasses say it has."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        # What an older file lacks has its default; what has none must be there.
        there = [f for f in fields(kind) if f.name in value or not _has_default(f)]
        return kind(**{f.name: _decoded(hints[f.name], value[f.name]) for f in there})
    if kind is float and value is None:  # not a number, which JSON cannot say
        return float("nan")
    if origin is types.UnionType:
        return None if value is None else _decoded(inner[0], value)
    if origin is tuple:
        return tuple(_decoded(inner[0], entry) for entry in value)
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {key: _decoded(inner[1], entry) for key, entry in value.items()}
    return value
