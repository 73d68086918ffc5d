"""Class autoencoders: the loss by hand, one pass equal to one by one, codes that are cleared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sensorveil.nets.factorised import (
    ERROR_WEIGHT,
    SCALE,
    Design,
    FactorisedNets,
    NetworkSpec,
    Schedule,
    _shuffles,
    _Training,
    as_numbers,
    divergence,
    one_hot,
    sampled,
    train_factorised,
)
from sensorveil.progress import listen

DESIGN = Design(numbers=6, hidden=(2, 3), widths=(16, 8), latent=3, discriminator=(8, 8, 8))
SCHEDULE = Schedule(epochs=4, steps=6, batch=16, discriminator_steps=3)


def windows(count: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows whose first number says the first hidden class; both classes of each window."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.stack([torch.arange(count) % 2, torch.arange(count) // 2 % 3], dim=1)
    signal = torch.randn(count, 6, generator=generator)
    signal[:, 0] += 3 * hidden[:, 0]
    return signal, hidden


def specs() -> list[NetworkSpec]:
    """Three networks of other windows, seeds, weights; the last has fewer windows than a batch."""
    _, hidden = windows()
    parts = (torch.arange(0, 50), torch.arange(50, 80), torch.arange(80, 90))
    return [
        NetworkSpec(part, hidden[part], seed=10 + which, alpha=alpha, beta=beta)
        for which, (part, alpha, beta) in enumerate(
            zip(parts, (0.2, 1.0, 0.0), (2.0, 0.5, 10.0), strict=True)
        )
    ]


def trained(design: Design, chosen: list[NetworkSpec]) -> tuple[FactorisedNets, torch.Tensor]:
    signal, _ = windows()
    return train_factorised(design, chosen, lambda index: signal[index], SCHEDULE)


@pytest.mark.parametrize(
    "design",
    [
        DESIGN,
        replace(DESIGN, discriminator=None),
        replace(DESIGN, discriminator=None, variational=False),
        replace(DESIGN, discriminator=None, conditional=False),
    ],
    ids=["obscurenet", "cvae", "cae", "vae"],
)
def test_all_in_one_pass_is_one_by_one(design: Design) -> None:
    together, history = trained(design, specs())
    for which, spec in enumerate(specs()):
        alone, own = trained(design, [spec])
        torch.testing.assert_close(history[..., which], own[..., 0], rtol=1e-4, atol=1e-5)
        for name, weights in alone.state_dict().items():
            torch.testing.assert_close(
                together.state_dict()[name][which], weights[0], rtol=1e-3, atol=1e-5
            )


def test_the_seed_decides() -> None:
    first, again = trained(DESIGN, specs())[1], trained(DESIGN, specs())[1]
    other = trained(DESIGN, [replace(spec, seed=spec.seed + 1) for spec in specs()])[1]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def plain_step(
    nets: FactorisedNets,
    x: torch.Tensor,
    hidden: torch.Tensor,
    noise: torch.Tensor,
    spec: NetworkSpec,
) -> None:
    """Algorithm 1 for one network and one batch, in torch's own words, with plain Adam."""
    readers = nets.discriminators
    coders = [*nets.encoder.parameters(), *nets.decoder.parameters()]
    judge = torch.optim.Adam(readers.parameters(), lr=1e-3)
    coder = torch.optim.Adam(coders, lr=1e-3)
    code = nets.encoder.one(0, x)
    mu, logvar = code[:, :3], code[:, 3:]
    z = mu + (logvar / 2).exp() * noise

    def cross_entropy(z: torch.Tensor) -> torch.Tensor:
        return sum(
            nn.functional.cross_entropy(reader.one(0, z), hidden[:, which])
            for which, reader in enumerate(readers)
        )

    for _ in range(SCHEDULE.discriminator_steps):
        judge.zero_grad()
        cross_entropy(z.detach()).backward()
        judge.step()
    told = torch.cat(
        [nn.functional.one_hot(hidden[:, 0], 2), nn.functional.one_hot(hidden[:, 1], 3)], dim=1
    )
    made = nets.decoder.one(0, torch.cat([z, told.float()], dim=1))
    normal = torch.distributions.Normal(0, 1)
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(mu, (logvar / 2).exp()), normal
    )
    # The authors' form of equation (4) at beta = 2: (512 MSE + 4 KL) / 150 - alpha CE.
    elbo = 512 * nn.functional.mse_loss(made, x) + 4 * (spec.beta / 2) * kl.sum(1).mean()
    coder.zero_grad()
    (elbo / 150 - spec.alpha * cross_entropy(z)).backward()
    coder.step()


def test_a_step_by_hand() -> None:
    signal, _ = windows()
    spec = replace(specs()[0], alpha=0.7, beta=3.0)
    schedule = replace(SCHEDULE, epochs=1, steps=1)
    nets, history = train_factorised(DESIGN, [spec], lambda index: signal[index], schedule)
    generator = torch.Generator().manual_seed(spec.seed)
    plain = FactorisedNets(DESIGN, [generator])
    order = torch.randperm(50, generator=generator)[:16]
    noise = torch.randn(1, 16, 3, generator=generator)[0]
    plain_step(plain, signal[spec.positions[order]], spec.hidden[order], noise, spec)
    for name, weights in plain.state_dict().items():
        torch.testing.assert_close(nets.state_dict()[name], weights, rtol=1e-4, atol=2e-6)
    assert history.shape == (1, 3, 1)


def test_the_scale_is_the_authors() -> None:
    np.testing.assert_allclose([ERROR_WEIGHT / SCALE, 2 / SCALE], [512 / 150, 4 / 150])


def test_discriminators_are_frozen_while_the_coder_learns() -> None:
    signal, _ = windows()
    training = _Training(
        DESIGN, specs(), lambda i: signal[i], replace(SCHEDULE, discriminator_steps=0),
        torch.device("cpu"),
    )  # fmt: skip
    before = {k: v.clone() for k, v in training.nets.state_dict().items()}
    training.draw_epoch()
    training.step(torch.tensor([0]))
    for name, weights in training.nets.state_dict().items():
        assert torch.equal(weights, before[name]) == name.startswith("discriminators"), name


def test_divergence_and_sampling_by_hand() -> None:
    mu, logvar = torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[0.2, -0.7]]])
    expected = sum(0.5 * (m**2 + math.exp(v) - 1 - v) for m, v in ((0.5, 0.2), (-1.0, -0.7)))
    assert divergence(mu, logvar).item() == pytest.approx(expected, rel=1e-5)
    assert divergence(mu, None).item() == 0
    noise = torch.tensor([[[2.0, 3.0]]])
    np.testing.assert_allclose(
        sampled(mu, logvar, noise)[0, 0],
        [0.5 + 2 * math.exp(0.1), -1 + 3 * math.exp(-0.35)],
        rtol=1e-6,
    )
    assert sampled(mu, None, noise) is mu


@torch.no_grad()
def test_surprise_is_the_cross_entropy_of_all_discriminators() -> None:
    nets = FactorisedNets(DESIGN, [torch.Generator().manual_seed(s) for s in (1, 2)])
    _, hidden = windows(10)
    z = torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(0))
    got = nets.surprise(z, one_hot(hidden, (2, 3)).expand(2, -1, -1))
    for group in range(2):
        expected = sum(
            nn.functional.cross_entropy(reader.one(group, z[group]), hidden[:, which])
            for which, reader in enumerate(nets.discriminators)
        )
        assert got[group].item() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(("count", "wanted"), [(7, 3), (7, 7), (7, 30), (1, 4)])
def test_shuffles_show_all_before_any_twice(count: int, wanted: int) -> None:
    order = _shuffles(count, wanted, torch.Generator().manual_seed(0))
    assert len(order) == wanted
    seen = torch.bincount(order, minlength=count)
    assert seen.max() - seen.min() <= 1


def test_the_adversary_clears_the_code() -> None:
    """A class that a line reads from the code of a plain one cannot be read from a cleared one."""
    generator = torch.Generator().manual_seed(3)
    gender = torch.arange(400) % 2
    signal = torch.randn(400, 6, generator=generator)
    signal[:, :3] += 2.0 * (2 * gender[:, None] - 1)
    schedule = Schedule(epochs=60, steps=8, batch=50, rate=3e-3, discriminator_steps=5)
    design = replace(DESIGN, hidden=(2,))
    found = []
    for alpha, discriminator in ((1.0, (16, 16, 16)), (0.0, None)):
        spec = NetworkSpec(torch.arange(400), gender[:, None], 1, alpha=alpha, beta=10.0)
        nets, _ = train_factorised(
            replace(design, discriminator=discriminator), [spec], lambda i: signal[i], schedule
        )
        with torch.no_grad():
            mu = nets.encode(signal, group=0)[0]
        apart = mu[gender == 1].mean(0) - mu[gender == 0].mean(0)
        found.append((apart.abs() / mu.std(0)).max().item())
    cleared, plain = found
    assert cleared < 0.5 < plain


def test_a_state_comes_back_without_discriminators() -> None:
    nets, _ = trained(DESIGN, specs())
    again = FactorisedNets.from_state(DESIGN, nets.coder_state())
    assert not len(again.discriminators)
    signal, hidden = windows()
    mu, logvar = nets.encode(signal, group=2)
    torch.testing.assert_close(again.encode(signal, group=2), (mu, logvar), rtol=0, atol=0)
    told = one_hot(hidden, DESIGN.hidden)
    assert torch.equal(again.decode(mu, told, group=2), nets.decode(mu, told, group=2))


def test_complex_windows_as_numbers() -> None:
    signal = torch.randn(4, 2, 5, dtype=torch.complex64)
    numbers = as_numbers(signal)
    assert numbers.shape == (4, 20)
    back = numbers.numpy().view(np.complex64).reshape(4, 2, 5)
    np.testing.assert_array_equal(back, signal.numpy())
    assert as_numbers(torch.zeros(4, 2, 5, 3)).shape == (4, 30)


def test_progress_is_told() -> None:
    heard: list[tuple[str, int, int]] = []
    with listen(lambda *told: heard.append(told)):
        trained(DESIGN, specs()[:1])
    assert heard == [("autoencoders", done, 4) for done in range(5)]
