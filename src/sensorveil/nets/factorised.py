"""Class autoencoders whose code says little of the hidden attributes: networks and training.

ObscureNet (Hajihassnai and others 2021): an encoder gives mu and log-variance of a code z, a
decoder turns z and the hidden classes back into the window, and a discriminator for each hidden
attribute tries to read it from z. Algorithm 1 trains them in turns by equations (3) and (4).
Without discriminators it is a conditional variational autoencoder, without the condition on the
decoder a variational one, without the divergence a conditional autoencoder.

Many networks are trained in one pass (`nets/grouped.py`): one for each kept class, or a whole grid
of alpha, beta and seeds. All that is random in one of them comes from its own seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from sensorveil.cuda_graphs import Step, capture_step
from sensorveil.nets.grouped import GroupedMLP
from sensorveil.progress import track

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Gives the windows at some positions as (n, numbers) on the device."""

ERROR_WEIGHT, SCALE = 256.0, 75.0
"""The scale of equation (4) in the authors' code, whatever the size of the window.

They minimise (512 MSE + 4 KL) / 150 - 0.2 CE and call that beta = 2 and alpha = 0.2; divided by
two above and below it is (256 MSE + beta KL) / 75 - alpha CE. MSE is the mean over all numbers of
a window, 256 on MotionSense: so there 256 MSE is its summed error.
"""


@dataclass(frozen=True)
class Design:
    """The shape that all networks of one pass share.

    `hidden` is the number of classes of each hidden attribute, `widths` are the hidden layers of
    the encoder (the decoder has them backwards), `discriminator` those of each discriminator, or
    None for no discriminators.
    """

    numbers: int
    hidden: tuple[int, ...]
    widths: tuple[int, ...]
    latent: int
    conditional: bool = True
    variational: bool = True
    discriminator: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class NetworkSpec:
    """One network of a pass: its windows, what is hidden in them, its seed and its weights.

    `positions` (n,) are what `gather` takes, `hidden` (n, attributes) the classes. alpha weighs
    the discriminators and beta the divergence in equation (4).
    """

    positions: torch.Tensor
    hidden: torch.Tensor
    seed: int
    alpha: float = 0.2
    beta: float = 2.0


@dataclass(frozen=True)
class Schedule:
    """How long a pass goes, the same for all of its networks.

    Algorithm 1 gives the discriminators one step a batch, the authors' code 20.
    """

    epochs: int
    steps: int
    batch: int
    rate: float = 1e-3
    discriminator_steps: int = 20


class FactorisedNets(nn.Module):
    """Encoders, decoders and discriminators of several networks; `group` chooses one of them.

    >>> design = Design(numbers=6, hidden=(2, 3), widths=(8,), latent=4)
    >>> nets = FactorisedNets(design, [torch.Generator().manual_seed(seed) for seed in (1, 2)])
    >>> mu, logvar = nets.encode(torch.zeros(5, 6), group=1)
    >>> nets.decode(mu, torch.zeros(5, 5), group=1).shape
    torch.Size([5, 6])
    """

    def __init__(self, design: Design, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.design = design
        code = design.latent * (2 if design.variational else 1)
        seen = design.latent + (sum(design.hidden) if design.conditional else 0)
        self.encoder = GroupedMLP(generators, (design.numbers, *design.widths, code))
        self.decoder = GroupedMLP(generators, (seen, *design.widths[::-1], design.numbers))
        readers = design.hidden if design.discriminator is not None else ()
        self.discriminators = nn.ModuleList(
            GroupedMLP(generators, (design.latent, *(design.discriminator or ()), classes))
            for classes in readers
        )

    @classmethod
    def from_state(cls, design: Design, state: Mapping[str, torch.Tensor]) -> FactorisedNets:
        """The encoders and decoders that `coder_state` was taken from, without discriminators."""
        groups = len(state["encoder.layers.0.weight"])
        blank = [torch.Generator()] * groups
        nets = cls(replace(design, discriminator=None), blank)
        nets.load_state_dict(dict(state))
        return nets

    def coder_state(self) -> dict[str, torch.Tensor]:
        """The weights of encoders and decoders, (networks, inputs, outputs) each."""
        state = self.state_dict()
        return {k: v for k, v in state.items() if not k.startswith("discriminators.")}

    def encode(
        self, x: torch.Tensor, group: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """mu and log-variance of the code; no log-variance where it is not variational."""
        code = self.encoder(x) if group is None else self.encoder.one(group, x)
        if not self.design.variational:
            return code, None
        mu, logvar = code.chunk(2, dim=-1)
        return mu, logvar

    def decode(
        self, z: torch.Tensor, condition: torch.Tensor, group: int | None = None
    ) -> torch.Tensor:
        """Windows out of codes and the hidden classes, one after the other as one-hot vectors."""
        seen = torch.cat([z, condition], dim=-1) if self.design.conditional else z
        made: torch.Tensor = self.decoder(seen) if group is None else self.decoder.one(group, seen)
        return made

    def surprise(self, z: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Equation (3) for each network: the discriminators' cross-entropy, all added up."""
        total = torch.zeros(len(z), device=z.device)
        parts = condition.split(self.design.hidden, dim=-1)
        for reader, truth in zip(self.discriminators, parts, strict=False):
            total = total - (truth * reader(z).log_softmax(-1)).sum(-1).mean(-1)
        return total


def sampled(mu: torch.Tensor, logvar: torch.Tensor | None, noise: torch.Tensor) -> torch.Tensor:
    """z = mu + sigma * noise, as in algorithm 1; mu itself where there is no variance.

    >>> sampled(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([0.5]))
    tensor([1.5000])
    """
    return mu if logvar is None else mu + torch.exp(0.5 * logvar) * noise


def divergence(mu: torch.Tensor, logvar: torch.Tensor | None) -> torch.Tensor:
    """KL(q(z|x) || N(0, I)) in nats, the mean over the windows of each network.

    >>> divergence(torch.full((1, 3, 2), 2.0), torch.zeros(1, 3, 2))  # half of 2^2, twice
    tensor([4.])
    """
    if logvar is None:
        return torch.zeros(len(mu), device=mu.device)
    return 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(-1).mean(-1)


def as_numbers(signal: torch.Tensor) -> torch.Tensor:
    """Windows as plain vectors: (n, channels, length) to (n, numbers); two for a complex sample.

    >>> as_numbers(torch.tensor([[[1 + 2j, 3]]]))
    tensor([[1., 2., 3., 0.]])
    """
    return (torch.view_as_real(signal) if signal.is_complex() else signal).flatten(1)


def one_hot(codes: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """Codes (..., attributes) as one-hot vectors side by side (..., sum of classes).

    >>> one_hot(torch.tensor([[1, 0]]), (2, 3))
    tensor([[0., 1., 1., 0., 0.]])
    """
    parts = [
        codes[..., which, None] == torch.arange(count, device=codes.device)
        for which, count in enumerate(classes)
    ]
    return torch.cat(parts, dim=-1).float()


def train_factorised(
    design: Design,
    specs: Sequence[NetworkSpec],
    gather: Gather,
    schedule: Schedule,
    device: str | torch.device = "cpu",
    what: str = "autoencoders",
) -> tuple[FactorisedNets, torch.Tensor]:
    """Trains one network for each spec, all in one pass, by algorithm 1.

    Returns the networks and their history (epochs, 3, networks): the mean squared error, the
    divergence and the discriminators' cross-entropy, each the mean over an epoch.
    """
    training = _Training(design, specs, gather, schedule, torch.device(device))
    take: Step = training.step
    if training.on_gpu:
        first = torch.zeros(1, dtype=torch.long, device=device)
        take = capture_step(training.step, first, training.nets, *training.optimizers)
    history = []
    numbers = torch.arange(schedule.steps, device=device).view(-1, 1)
    for _ in track(range(schedule.epochs), what):
        training.draw_epoch()
        for number in numbers:
            take(number)
        history.append((training.total / schedule.steps).cpu())
    return training.nets, torch.stack(history)


class _Training:
    """The state of one pass: networks, optimisers, and what one epoch draws."""

    def __init__(
        self,
        design: Design,
        specs: Sequence[NetworkSpec],
        gather: Gather,
        schedule: Schedule,
        device: torch.device,
    ) -> None:
        self.design, self.specs, self.gather, self.schedule = design, specs, gather, schedule
        self.on_gpu = device.type == "cuda"
        self.generators = [torch.Generator().manual_seed(spec.seed) for spec in specs]
        self.nets = FactorisedNets(design, self.generators).to(device)
        self.coder = [*self.nets.encoder.parameters(), *self.nets.decoder.parameters()]
        self.optimizers = [self._adam(self.coder)]
        if len(self.nets.discriminators):
            self.optimizers.append(self._adam(list(self.nets.discriminators.parameters())))
        self.alpha = torch.tensor([spec.alpha for spec in specs], device=device)
        self.beta = torch.tensor([spec.beta for spec in specs], device=device)
        self.total = torch.zeros(3, len(specs), device=device)
        # A recorded step reads the same memory each time: epochs are copied into these.
        shape = (schedule.steps, len(specs), schedule.batch)
        self.positions = torch.zeros(shape, dtype=torch.long, device=device)
        self.hidden = torch.zeros(*shape, len(design.hidden), dtype=torch.long, device=device)
        self.noise = torch.zeros(*shape, design.latent, device=device)

    def _adam(self, parameters: list[nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(
            parameters, lr=self.schedule.rate, fused=True, capturable=self.on_gpu
        )

    def draw_epoch(self) -> None:
        """Draws the batches and the noise of an epoch, each network from its own generator."""
        steps, batch = self.schedule.steps, self.schedule.batch
        for which, (spec, generator) in enumerate(zip(self.specs, self.generators, strict=True)):
            order = _shuffles(len(spec.positions), steps * batch, generator).view(steps, batch)
            self.positions[:, which] = spec.positions[order].to(self.positions.device)
            self.hidden[:, which] = spec.hidden[order].to(self.hidden.device)
            noise = torch.randn(steps, batch, self.design.latent, generator=generator)
            self.noise[:, which] = noise.to(self.noise.device)
        self.total.zero_()

    def step(self, number: torch.Tensor) -> None:
        """One minibatch of algorithm 1 for all networks; `number` (1,) is its place."""
        positions, hidden, noise = (
            drawn.index_select(0, number)[0] for drawn in (self.positions, self.hidden, self.noise)
        )
        x = self.gather(positions.flatten()).view(*positions.shape, -1)
        condition = one_hot(hidden, self.design.hidden)
        mu, logvar = self.nets.encode(x)
        z = sampled(mu, logvar, noise)
        for optimizer in self.optimizers[1:]:
            for _ in range(self.schedule.discriminator_steps):
                optimizer.zero_grad(set_to_none=True)
                self.nets.surprise(z.detach(), condition).sum().backward()
                optimizer.step()
        # Networks share no weight, so the gradient of the sum is that of each on its own.
        error = (self.nets.decode(z, condition) - x).square().mean((1, 2))
        kl, surprise = divergence(mu, logvar), self.nets.surprise(z, condition)
        loss = (ERROR_WEIGHT * error + self.beta * kl) / SCALE - self.alpha * surprise
        self.optimizers[0].zero_grad(set_to_none=True)
        loss.sum().backward(inputs=self.coder)  # the discriminators are frozen here
        self.optimizers[0].step()
        self.total.add_(torch.stack([error, kl, surprise]).detach())


def _shuffles(count: int, wanted: int, generator: torch.Generator) -> torch.Tensor:
    """`wanted` positions below `count`: whole shuffles one after the other, the last one cut."""
    rounds = -(-wanted // count)
    orders = [torch.randperm(count, generator=generator) for _ in range(rounds)]
    return torch.cat(orders)[:wanted]
