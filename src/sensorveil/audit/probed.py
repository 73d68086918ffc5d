"""What a run itself found out about what its output is made from."""

from __future__ import annotations

from sensorveil.audit.results import ConditionProbe
from sensorveil.methods.base import Obfuscator


def probed(obfuscator: Obfuscator) -> tuple[ConditionProbe, ...]:
    """What probes read of each attribute that is not kept, where the run has asked them.

    They were asked in training, at the strengths that the settings name.

    >>> from sensorveil.methods.conformance import example_windows
    >>> from sensorveil.methods.baselines import NoObfuscation
    >>> probed(NoObfuscation().fit(example_windows(), "activity", "gender"))
    ()
    """
    found = obfuscator.metrics_.get("probe", {})
    return tuple(
        ConditionProbe(name, source, **read, people=found["people"], windows=found["windows"])
        for source in ("z_U", "condition")
        for name, read in found.get(source.replace("condition", "told"), {}).items()
        if name not in obfuscator.policy_.keep
    )
