"""Layers on pairs do what torch does with complex numbers."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorveil.nets.complex_layers import (
    ComplexAttention,
    ComplexLinear,
    conjugate,
    normalised,
    product,
    turned,
)


def numbers(pairs: torch.Tensor) -> torch.Tensor:
    """Pairs as torch's complex numbers."""
    return torch.complex(*pairs.unbind(-2))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 10_000), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_arithmetic(seed: int, shape: list[int]) -> None:
    *before, size = shape
    first, second = drawn(2, *before, 2, size, seed=seed)
    close = torch.testing.assert_close
    close(numbers(product(first, second)), numbers(first) * numbers(second))
    close(numbers(conjugate(first)), numbers(first).conj())
    angle = drawn(*shape, seed=seed)
    close(numbers(turned(angle)), torch.exp(1j * angle))


def test_normalised_keeps_phases_and_makes_power_one() -> None:
    pairs = 3 * drawn(5, 2, 40) + 7
    found = numbers(normalised(pairs))
    centred = numbers(pairs) - numbers(pairs).mean(-1, keepdim=True)
    torch.testing.assert_close(found.angle(), centred.angle())
    torch.testing.assert_close(
        found.abs().square().mean(-1), torch.ones(5, dtype=torch.float64), atol=1e-4, rtol=0
    )


def test_linear_is_a_complex_matrix_product() -> None:
    layer = ComplexLinear(3, 5).double()
    matrix = torch.complex(layer.real.weight, layer.imaginary.weight)
    a, b = layer.real.bias, layer.imaginary.bias
    pairs = drawn(7, 4, 2, 3)
    wanted = numbers(pairs) @ matrix.T + torch.complex(a - b, a + b)
    torch.testing.assert_close(numbers(layer(pairs)), wanted)
    assert not layer.zeroed()(pairs).any()


def slow_attention(
    layer: ComplexAttention, tokens: torch.Tensor, others: torch.Tensor, speeds: torch.Tensor
) -> torch.Tensor:
    """One window, one head, one token at a time; what is passed on turns with the distance."""
    query, key, value = (
        numbers(part) for part in (layer.query(tokens), layer.key(others), layer.value(others))
    )
    size = query.shape[-1] // layer.heads
    made = torch.zeros_like(query)
    for n in range(len(query)):
        for head in range(layer.heads):
            own = slice(head * size, (head + 1) * size)
            turns = [torch.exp(1j * speeds[own] * (n - m)) for m in range(len(key))]
            scores = torch.stack(
                [
                    (query[n, own] * (key[m, own] * turn).conj()).real.sum() / (2 * size) ** 0.5
                    for m, turn in enumerate(turns)
                ]
            )
            for m, share in enumerate(scores.softmax(0)):
                made[n, own] += share * value[m, own] * turns[m]
    return layer.out(torch.stack([made.real, made.imag], dim=-2))


def test_attention_against_a_slow_one() -> None:
    torch.manual_seed(0)
    layer = ComplexAttention(6, heads=2).double()
    tokens, others = drawn(1, 5, 2, 6), drawn(1, 3, 2, 6, seed=1)
    still = torch.zeros(6, dtype=torch.float64)
    wanted = slow_attention(layer, tokens[0], others[0], still)
    torch.testing.assert_close(layer(tokens, others)[0], wanted)
    speeds = drawn(6, seed=2)
    places = turned(torch.arange(5, dtype=torch.float64)[:, None] * speeds)
    wanted = slow_attention(layer, tokens[0], tokens[0], speeds)
    torch.testing.assert_close(layer(tokens, tokens, places)[0], wanted)
