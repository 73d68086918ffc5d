"""What the audit's tests share: settings of an audit that takes a second or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sensorveil.audit import applications
from sensorveil.audit.attackers import Budget
from sensorveil.audit.audit import AuditSettings


@pytest.fixture
def small_audit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AuditSettings]:
    """Settings for a budget: one seed, one application, nothing beside the attacks."""
    name = applications.TREES
    monkeypatch.setattr(applications, "_APPLICATIONS", {name: applications.application_class(name)})

    def settings(budget: Budget, **more: Any) -> AuditSettings:
        left_out = {"lazy": False, "donors": 0, "reidentification_runs": 0, "examples": 0}
        return AuditSettings(
            budget, (0,), quick=True, **{**left_out, "plain": (), "workers": 1, **more}
        )

    return settings
