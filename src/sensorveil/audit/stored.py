"""Audits in files: read again, and those of several splits joined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.audit.results import FILE, FORMAT, Audit, gaps
from sensorveil.errors import Refusal
from sensorveil.files import read_json


def read_audit(folder: Path) -> Audit:
    """The audit in a folder that `sensorveil audit` wrote."""
    from pydantic import TypeAdapter, ValidationError

    place = folder / FILE if folder.is_dir() else folder
    content = read_json(place)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Refusal(f"{place} is no audit of format {FORMAT}; run the audit again")
    try:
        return TypeAdapter(Audit).validate_python(_with_nan(content))
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise Refusal(
            f"{place} is damaged ({where}: {wrong['msg']}); run the audit again"
        ) from None


def _with_nan(content: Any) -> Any:
    """JSON has no NaN: it is null in estimates, and nowhere else."""
    if isinstance(content, list):
        return [_with_nan(entry) for entry in content]
    if not isinstance(content, dict):
        return content
    if {"value", "low", "high"} <= set(content):
        return {k: np.nan if v is None and k != "spread" else v for k, v in content.items()}
    return {name: _with_nan(entry) for name, entry in content.items()}


def joined(audits: Sequence[Audit]) -> list[Audit]:
    """Audits of one method, policy and dataset on different splits become one, unseen first."""
    groups: dict[str, list[Audit]] = {}
    for audit in audits:
        policy = (audit.method, audit.keep, audit.hide, audit.dataset, audit.protocol)
        key = json.dumps([policy, dict(audit.strength), dict(audit.run)], sort_keys=True)
        groups.setdefault(key, []).append(audit)
    found = []
    for group in groups.values():
        splits = [split.split for audit in group for split in audit.splits]
        found += group if len(set(splits)) < len(splits) else [_joined(group)]
    return found


def _joined(group: Sequence[Audit]) -> Audit:
    splits = sorted((s for a in group for s in a.splits), key=lambda split: not split.unseen_people)
    commands = "; ".join(str(a.conditions.get("command", "")) for a in group)
    return replace(
        group[0],
        splits=tuple(splits),
        gaps=gaps(splits, group[0].hide),
        quick=any(audit.quick for audit in group),
        conditions={**group[0].conditions, "command": commands},
    )
