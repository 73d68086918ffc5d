"""The CSI networks: pairs and back, what a condition does, any length, and nothing at the start."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sensorveil.nets.complex_layers import ComplexAttention
from sensorveil.nets.csi import CsiTransformer, Repair, TransformerSettings, as_pairs, from_pairs

SMALL = TransformerSettings(width=8, blocks=2, heads=2, patch=4)


def stirred(net: nn.Module, seed: int = 0) -> nn.Module:
    """The network with all weights drawn: gates that begin at zero would hide everything."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=chance) * 0.3)
    return net


def asked(net: nn.Module, length: int = 18) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(5, 6, length, generator=chance)
    condition = torch.eye(3)[[0, 1, 2, 0, 1]]
    return x, torch.tensor([0, 3, 9, 50, 199]), condition


def test_pairs_have_unit_variance_and_come_back() -> None:
    chance = torch.Generator().manual_seed(0)
    signal = torch.randn(40, 3, 50, dtype=torch.complex64, generator=chance)
    pairs = as_pairs(signal)
    assert pairs.shape == (40, 6, 50)
    assert float(signal.abs().square().mean()) == pytest.approx(1.0, abs=0.05)
    assert float(pairs.var()) == pytest.approx(1.0, abs=0.05)
    torch.testing.assert_close(from_pairs(pairs, True), signal)
    real = signal.real.contiguous()
    torch.testing.assert_close(from_pairs(as_pairs(real), False), real)


@pytest.mark.parametrize("length", [1, 16, 18])
def test_patches_hold_every_moment_once(length: int) -> None:
    net = CsiTransformer(3, (3,), SMALL)
    x, _, _ = asked(net, length)
    patches = net._patches(x)
    assert patches.shape == (5, -(-length // 4), 2, 12)
    torch.testing.assert_close(net._moments(patches, x), x)


def test_it_begins_by_predicting_nothing() -> None:
    net = CsiTransformer(3, (3,), SMALL)
    assert not net(*asked(net)).any()


def test_level_and_condition_matter_and_only_to_their_own_window() -> None:
    net = stirred(CsiTransformer(3, (3,), SMALL))
    x, t, condition = asked(net)
    plain = net(x, t, condition).detach()
    for changed in (
        net(x, t.roll(1), condition),
        net(x, t, torch.zeros_like(condition)),
        net(x.flip(2), t, condition),
    ):
        assert bool(((plain - changed).abs().amax((1, 2)) > 1e-3).all())
    other = x.clone()
    other[0] += 1
    torch.testing.assert_close(net(other, t, condition)[1:], plain[1:])


def test_turning_all_phases_turns_the_output() -> None:
    """Without biases the network does not know where a phase begins, as no receiver does."""
    net = stirred(CsiTransformer(3, (3,), TransformerSettings(8, 1, 2, patch=2)))
    with torch.no_grad():
        for name, weight in net.named_parameters():
            signal_path = name.startswith(("enter", "leave", "kept")) or "self_attention" in name
            if signal_path and name.endswith("bias"):
                weight.zero_()
        for name, weight in net.blocks.named_parameters():
            # Only self-attention, scaled and gated: shifts and classes have phases of their own.
            if "cross_attention.out" in name or "dense.2" in name:
                weight.zero_()
        for layer in (net.blocks[0].gates.real, net.blocks[0].gates.imaginary):
            layer.weight[:8], layer.bias[:8] = 0, 0
    x, t, condition = asked(net)
    turn = torch.exp(torch.tensor(0.7j))
    there = as_pairs(from_pairs(x, True) * turn)
    wanted = as_pairs(from_pairs(net(x, t, condition), True) * turn)
    torch.testing.assert_close(net(there, t, condition), wanted, atol=1e-4, rtol=1e-4)


def test_private_modules_are_attention_and_embedding() -> None:
    net = CsiTransformer(3, (3,), SMALL)
    found = list(net.private_modules())
    assert found[0] is net.embedding
    assert len(found) == 1 + 2 * 2  # two attentions in each of two blocks
    assert all(isinstance(module, ComplexAttention) for module in found[1:])
    private = {id(weight) for module in found for weight in module.parameters()}
    others = {n for n, weight in net.named_parameters() if id(weight) not in private}
    assert {name.split(".")[0] for name in others} == {"enter", "leave", "kept", "blocks"}
    assert all(".dense." in n or ".gates." in n for n in others if n.startswith("blocks"))


def test_no_parameter_is_complex() -> None:
    for net in (CsiTransformer(3, (3,), SMALL), Repair(6, 8)):
        assert not any(weight.is_complex() for weight in net.parameters())


def test_repair_changes_once_it_has_learnt() -> None:
    windows = torch.randn(2, 6, 16)
    assert torch.equal(Repair(6, 8)(windows), windows)
    assert not torch.allclose(stirred(Repair(6, 8))(windows), windows)
