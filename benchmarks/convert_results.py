"""Renames the keys of stored results of format 1 to those of format 2; no number changes.

python benchmarks/convert_results.py results
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RENAMED = {"level": "threat_model", "family": "attacker", "found": "significant"}
RENAMED |= {"control_found": "control_significant", "told": "condition_probes"}
RENAMED |= {"back": "retrained_on_raw", "parts": "splits"}


def converted(content: Any) -> Any:
    """The same values under the names of format 2."""
    if isinstance(content, list):
        return [converted(entry) for entry in content]
    if not isinstance(content, dict):
        return content
    if {"status", "reason"} <= set(content):
        status = "inconclusive" if content["status"] == "void" else content["status"]
        return {**content, "status": status}
    if "class_alone" in content and content.get("source") == "told":
        content = {**content, "source": "condition"}
    named = {"after": "protocol"} if "runs" in content and "spread" in content else {}
    return {named.get(k, RENAMED.get(k, k)): converted(v) for k, v in content.items()}


def convert_folder(folder: Path) -> int:
    """Converts every audit below a folder; returns how many."""
    count = 0
    for place in sorted(folder.rglob("audit.json")):
        content = json.loads(place.read_text("utf-8"))
        if content["format"] == 1:
            run = content.pop("run", {})  # settings keep the names that the run was trained with
            new = {**converted(content), "run": run, "format": 2}
            text = json.dumps(new, indent=2, ensure_ascii=False) + "\n"
            place.write_text(text, "utf-8")
            count += 1
    return count


if __name__ == "__main__":
    print(f"{convert_folder(Path(sys.argv[1]))} audits converted")
