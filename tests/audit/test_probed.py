"""What a run's own probes found goes into the audit as it is."""

from __future__ import annotations

from typing import Any

from sensorveil.audit.probed import probed
from sensorveil.audit.results import ConditionProbe
from sensorveil.methods.baselines import NoObfuscation
from sensorveil.methods.conformance import example_windows


def read(accuracy: float) -> dict[str, float]:
    return {"accuracy": accuracy, "class_alone": 0.5, "majority": 0.6}


def test_every_attribute_but_the_kept_one_is_there_from_both_sources() -> None:
    obfuscator = NoObfuscation().fit(example_windows(), "activity", "gender")
    assert probed(obfuscator) == ()
    found: dict[str, Any] = {
        "people": 4,
        "windows": 48,
        "z_U": {"activity": read(1.0), "gender": read(0.8), "weight": read(0.7)},
        "told": {"activity": read(1.0), "gender": read(0.51)},
    }
    obfuscator.metrics_["probe"] = found
    assert probed(obfuscator) == (
        ConditionProbe("gender", "z_U", 0.8, 0.5, 0.6, people=4, windows=48),
        ConditionProbe("weight", "z_U", 0.7, 0.5, 0.6, people=4, windows=48),
        ConditionProbe("gender", "condition", 0.51, 0.5, 0.6, people=4, windows=48),
    )
