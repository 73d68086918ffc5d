"""Audits come back from JSON as they were, and those of one method are joined."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample

from sensorveil.audit.results import (
    HIDDEN,
    DonorAudit,
    Membership,
    Nearness,
    SignalUtility,
    Verdict,
    gaps,
)
from sensorveil.audit.stored import joined, read_audit
from sensorveil.errors import Refusal
from sensorveil.files import write_json
from sensorveil.report import render
from sensorveil.statistics import Estimate


def test_round_trip(tmp_path):
    audit = sample.audit()
    write_json(tmp_path / "audit.json", audit.as_dict())
    assert read_audit(tmp_path).as_dict() == audit.as_dict()
    assert read_audit(tmp_path / "audit.json").main.attributes == audit.main.attributes


def test_donors_come_back(tmp_path):
    """With and without nearness and membership, which a quick audit cannot always ask for."""
    some = Estimate(0.5, 0.49, 0.51, people=20)
    member = Membership("reconstruction error", 8, 4000, some, some)
    full = DonorAudit(Verdict(HIDDEN, "why"), Nearness(9, 0, 8, some, some, some), member)
    quick = DonorAudit(Verdict(HIDDEN, "why"), Nearness(9, 0), None, {"membership": "why"})
    audit = sample.audit()
    for donors in (full, quick):
        whole = replace(audit, splits=(replace(audit.main, donors=donors),))
        write_json(tmp_path / "audit.json", whole.as_dict())
        assert read_audit(tmp_path).main.donors == donors


def test_an_older_file_lacks_what_is_new(tmp_path):
    content = sample.audit().as_dict()
    for part in content["splits"]:
        for point in part["trade_off"]:
            del point["attribute"]
        for kept in part["kept"]:
            del kept["transitions"]
        part["signal"] = {"frequency_error": 0.41, "step_error": None}
    write_json(tmp_path / "audit.json", content)
    audit = read_audit(tmp_path)
    main = audit.main
    assert main.trade_off[0].attribute == ""
    assert main.kept[0].transitions is None
    assert main.signal == SignalUtility(frequency_error=0.41)
    page = render(audit)
    assert "Dominant frequency, mean error" in page
    assert "Cadence" not in page


@pytest.mark.parametrize("spoil", ["format", "splits", "method"])
def test_damaged(tmp_path, spoil):
    content = sample.audit().as_dict()
    del content[spoil]
    write_json(tmp_path / "audit.json", content)
    with pytest.raises(Refusal, match=r"audit\.json"):
        read_audit(tmp_path)


def test_splits_of_one_method_are_joined_with_unseen_people_first():
    audit = sample.audit()
    unseen = replace(audit.main, split="subject", unseen_people=True)
    seen = replace(audit.main, split="paper", unseen_people=False)
    one = replace(audit, splits=(seen,), gaps={})
    other = replace(audit, splits=(unseen,), gaps={})
    (found,) = joined([one, other])
    assert [part.split for part in found.splits] == ["subject", "paper"]
    assert found.gaps == gaps(found.splits, audit.hide)
    assert len(joined([one, replace(other, method="another")])) == 2
    assert len(joined([one, one])) == 2  # the same split twice is no pair
