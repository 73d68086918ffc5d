"""A node's own data: found by its configuration, one person's, and refused if it is not."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from sensorveil.errors import Refusal
from sensorveil.federated.apps import node_source
from sensorveil.federated.client import ClientData
from sensorveil.federated.plan import Plan
from sensorveil.methods.run import save_run


def context(**told):
    return Context(1, 7, told, RecordDict(), {})


@pytest.fixture
def start(obfuscator, tmp_path):
    return str(save_run(obfuscator, tmp_path / "start"))


def table(folder, people):
    """A table of those people, all of one gender, in the format of the run."""
    lines = ["person,0,1,activity,gender"]
    for person in people:
        for sample in range(32 * 6):
            activity = sample // 32 % 2
            lines.append(f"{person},{50 + sample % 7},{0.1 + 0.01 * (sample % 5)},{activity},1")
    (folder / "own.csv").write_text("\n".join(lines))
    (folder / "own.toml").write_text(
        'file = "own.csv"\nsubject = "person"\nrate = 50\nchannels = ["0", "1"]\n'
        "[window]\nlength = 32\nstride = 32\n[attributes.activity]\n"
        '[attributes.gender]\nclasses = ["1", "0"]\n'  # in another order than the run's
    )
    return str(folder / "own.toml")


def test_a_device_with_one_persons_table_is_a_client(obfuscator, start, tmp_path):
    data = table(tmp_path, ["ann"])
    client, run, windows = node_source(context(client=4, run=start, data=data))
    assert client == 4
    own = ClientData.of(run, windows, Plan(support=1, query=2, balance=0), client)
    assert len(own) == 6
    assert set(own.hidden[:, 0].tolist()) == {1}
    assert np.bincount(own.kept).tolist() == [3, 3]


def test_one_of_several_people_must_be_named(start, tmp_path):
    data = table(tmp_path, ["ann", "bob"])
    with pytest.raises(Refusal, match=r"2 people; say person=.* one of ann, bob"):
        node_source(context(client=0, run=start, data=data))
    _, _, windows = node_source(context(client=0, run=start, data=data, person="bob"))
    assert {windows.classes["subject"][code] for code in windows.subject} == {"bob"}


@pytest.mark.parametrize("missing", ["client", "run", "data"])
def test_what_a_node_must_be_told(start, missing):
    told = {"client": 0, "run": start, "data": "simulated"}
    del told[missing]
    with pytest.raises(Refusal, match=f"--node-config lacks '{missing}'"):
        node_source(context(**told))
