"""Witnesses of what a decoder was told: against cross-entropy one model at a time."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sensorveil.nets.witnesses import misread, next_classes
from sensorveil.train import seeded


def test_models_are_averaged_and_attributes_added_up():
    with seeded(1):
        kept = [nn.Sequential(nn.Flatten(), nn.Linear(8, 3)) for _ in range(2)]
        hidden = [nn.Sequential(nn.Flatten(), nn.Linear(8, 2))]
        windows = torch.randn(5, 2, 4)
    activity, gender = torch.tensor([0, 2, 1, 1, 0]), torch.tensor([1, 0, 0, 1, 1])
    wanted = sum(cross_entropy(model(windows), activity) for model in kept) / 2
    wanted = wanted + cross_entropy(hidden[0](windows), gender)
    got = misread([kept, hidden], windows, [torch.eye(3)[activity], torch.eye(2)[gender]])
    torch.testing.assert_close(got, wanted)


def test_next_classes_come_around():
    hidden = torch.cat([torch.eye(2)[[0, 1]], torch.eye(3)[[2, 0]]], dim=1)
    moved = next_classes(hidden, (2, 3))
    assert torch.equal(moved, torch.cat([torch.eye(2)[[1, 0]], torch.eye(3)[[0, 1]]], dim=1))
