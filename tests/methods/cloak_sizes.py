"""Settings of CLOAK that train in a moment, for its tests."""

from __future__ import annotations

from typing import Any

TINY: dict[str, Any] = {
    "epochs": 2,
    "coder_epochs": 1,
    "reader_epochs": 3,
    "width": 16,
    "blocks": 1,
    "features": 8,
    "coder": "4-8",
    "encoder": "4",
    "reader": "16",
    "steps": 4,
    "levels": 50,
    "coin": False,
}
PUBLISHED: dict[str, Any] = {
    **TINY,
    "coder": "16-12-8",
    "encoder": "2-4",
    "dense": "8",
    "width": 8,
    "avoids": "predicted",
}
