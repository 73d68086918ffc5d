"""The configuration of a federation, known to the server and to every client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from sensorveil.errors import Refusal
from sensorveil.methods.blinder import warm_up_share
from sensorveil.methods.settings import Settings
from sensorveil.train import one_cycle

Share = Annotated[float, Field(gt=0, le=1)]


class AdaptationConfig(Settings):
    """How clients adapt to their support set, see `meta_learning.adapt`.

    Parameters
    ----------
    steps
        Local steps; with 0 clients do not adapt, and the algorithm is FedBlinder.
    learning_rate
        Of the local steps; the authors' code has 1e-4.
    discriminator_steps
        The discriminators' steps in each local step.
    shadow_samples
        Whether discriminators are trained on shadow samples too (section 6.2).
    """

    steps: NonNegativeInt = 1
    learning_rate: PositiveFloat = 1e-4
    discriminator_steps: PositiveInt = 5
    shadow_samples: bool = True


class RobustnessConfig(Settings):
    """What a round does about clients that are slow, gone or wrong.

    Parameters
    ----------
    quorum
        Share of the sampled clients whose updates a round needs.
    timeout
        Seconds that a round waits for updates.
    attempts
        How many times clients are sampled for one round before the federation stops.
    max_relative_norm
        An update with a norm this many times the round's median is refused.
    """

    quorum: Share = 0.5
    timeout: PositiveFloat = 60.0
    attempts: PositiveInt = 3
    max_relative_norm: PositiveFloat = 10.0


class PrivacyConfig(Settings):
    """Differential privacy for each client, see `privacy`.

    Parameters
    ----------
    noise_multiplier
        Deviation of the noise relative to `clip_norm`; 0 gives no privacy.
    clip_norm
        Updates are clipped to this norm.
    delta
        The delta of (epsilon, delta).
    max_epsilon
        The federation ends before its epsilon exceeds this.
    """

    noise_multiplier: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat = 1.0
    delta: Share = 1e-5
    max_epsilon: PositiveFloat = 8.0


class FederationConfig(Settings):
    """Algorithm 1 of Blinder with the values of section 7 or, where it has none, of its code.

    Parameters
    ----------
    epochs
        Each epoch samples its clients anew.
    rounds
        Communication rounds of an epoch.
    client_fraction
        Share of all clients that an epoch samples.
    support_size, query_size
        Windows that a client adapts to, and windows that it then takes the gradient on.
    balance
        Windows of each kept class after SMOTE and under-sampling (section 6.1), where the largest
        class has at least twice the windows of the smallest; 0 leaves the classes as they are.
    class_ratio
        For experiments: makes classes uneven by this ratio (R_D, section 7.7) instead; 0 does not.
    algorithm
        "fedsgd": clients send one gradient, the server takes a step of Adam. "fedavg": clients take
        `local_steps` steps of Adam and send how their weights changed.
    local_steps
        Steps of a client in a round of "fedavg".
    weighted
        Whether clients count by their number of windows, or all alike (line 9).
    learning_rate, schedule
        Of Adam; "one_cycle" raises it and lets it fall once over all rounds, "constant" keeps it.
    warm_up
        Share of the rounds over which all loss weights but alpha grow from zero.
    seed
        Every random draw follows from it, but for those of a private federation.
    adaptation, robustness, privacy
        See `AdaptationConfig`, `RobustnessConfig` and `PrivacyConfig`.

    Examples
    --------
    >>> config = FederationConfig(epochs=2).with_values({"adaptation.steps": 2})
    >>> config.total_rounds, config.batch_size, config.adaptation.steps
    (300, 16, 2)
    """

    epochs: PositiveInt = 30
    rounds: PositiveInt = 150
    client_fraction: Share = 0.4
    support_size: NonNegativeInt = 1
    query_size: PositiveInt = 15
    balance: NonNegativeInt = 600
    class_ratio: NonNegativeFloat = 0.0
    algorithm: Literal["fedsgd", "fedavg"] = "fedsgd"
    local_steps: PositiveInt = 1
    weighted: bool = False
    learning_rate: PositiveFloat = 1e-3
    schedule: Literal["constant", "one_cycle"] = "constant"
    warm_up: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: NonNegativeInt = 0
    adaptation: AdaptationConfig = AdaptationConfig()
    robustness: RobustnessConfig = RobustnessConfig()
    privacy: PrivacyConfig = PrivacyConfig()

    def check(self) -> None:
        """Refuse what does not go together."""
        self.require(
            self.class_ratio == 0 or self.class_ratio >= 1, "class_ratio", "0, or 1 and more"
        )
        if self.class_ratio:
            self.require(self.balance > 0, "balance", "above 0 where there is a class_ratio")
        if self.adaptation.steps:
            self.require(self.support_size > 0, "support_size", "above 0 where clients adapt")
        if self.algorithm == "fedsgd":
            self.require(self.local_steps == 1, "local_steps", "1, or set algorithm=fedavg")
        if self.is_private and self.weighted:
            raise Refusal("a private federation takes a plain mean; set weighted=false")

    @property
    def batch_size(self) -> int:
        """Windows that one gradient takes."""
        return self.support_size + self.query_size

    @property
    def kind(self) -> str:
        """Blinder, or FedBlinder where clients do not adapt."""
        return "Blinder" if self.adaptation.steps else "FedBlinder"

    @property
    def total_rounds(self) -> int:
        """Rounds of all epochs."""
        return self.epochs * self.rounds

    @property
    def is_private(self) -> bool:
        """Whether updates are clipped and noised."""
        return self.privacy.noise_multiplier > 0

    def learning_rate_at(self, number: int) -> float:
        """The learning rate of the round with that number, from 0."""
        progress = number / self.total_rounds
        return self.learning_rate * (one_cycle(progress) if self.schedule == "one_cycle" else 1.0)

    def warm_up_at(self, number: int) -> float:
        """How much of the loss weights counts in a round."""
        return warm_up_share(number / self.total_rounds, self.warm_up)

    def with_values(self, values: Mapping[str, Any]) -> FederationConfig:
        """The same with other values, by full name or by name; text is converted."""
        return self.with_changes(values, "a federation")

    def fedblinder(self, values: Mapping[str, Any] | None = None) -> FederationConfig:
        """The paper's baseline: FedAvg of five local steps, no adaptation, nothing balanced.

        Whatever is given in `values` is honoured. The paper says five rounds on the local data and
        no more; here a step is a batch.

        >>> FederationConfig().fedblinder({"local_steps": 750}).local_steps
        750
        """
        plain = {
            "support_size": 0,
            "query_size": self.batch_size,
            "balance": 0,
            "algorithm": "fedavg",
            "local_steps": 5,
            "weighted": True,
            "adaptation.steps": 0,
            "adaptation.shadow_samples": False,
        }
        made = self.with_values({**plain, **(values or {})})
        if made.adaptation.steps:
            raise Refusal("FedBlinder does not adapt; leave adaptation.steps out")
        return made
