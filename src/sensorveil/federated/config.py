"""The configuration of a federation, known to the server and to every client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sensorveil.errors import Refusal, refuse_unknown
from sensorveil.methods.blinder import warm_up_share
from sensorveil.train import one_cycle

Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
CountOrZero = Annotated[int, Field(ge=0)]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AdaptationConfig(_Group):
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

    steps: CountOrZero = 1
    learning_rate: Positive = 1e-4
    discriminator_steps: Count = 5
    shadow_samples: bool = True


class RobustnessConfig(_Group):
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
    timeout: Positive = 60.0
    attempts: Count = 3
    max_relative_norm: Positive = 10.0


class PrivacyConfig(_Group):
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

    noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    clip_norm: Positive = 1.0
    delta: Share = 1e-5
    max_epsilon: Positive = 8.0


class FederationConfig(_Group):
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
    >>> config = FederationConfig(epochs=2, **{"adaptation.steps": 2})
    >>> config.total_rounds, config.batch_size, config.adaptation.steps
    (300, 16, 2)
    """

    epochs: Count = 30
    rounds: Count = 150
    client_fraction: Share = 0.4
    support_size: CountOrZero = 1
    query_size: Count = 15
    balance: CountOrZero = 600
    class_ratio: Annotated[float, Field(ge=0)] = 0.0
    algorithm: Literal["fedsgd", "fedavg"] = "fedsgd"
    local_steps: Count = 1
    weighted: bool = False
    learning_rate: Positive = 1e-3
    schedule: Literal["constant", "one_cycle"] = "constant"
    warm_up: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: CountOrZero = 0
    adaptation: AdaptationConfig = AdaptationConfig()
    robustness: RobustnessConfig = RobustnessConfig()
    privacy: PrivacyConfig = PrivacyConfig()

    def __init__(self, **values: Any) -> None:
        nested: dict[str, Any] = {}
        for name, value in values.items():
            group, dot, inner = name.partition(".")
            if not dot:
                nested[name] = value
            else:
                nested.setdefault(group, {})[inner] = value
        try:
            super().__init__(**nested)
        except ValidationError as error:
            raise _refusal(error) from None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if 0 < self.class_ratio < 1:
            raise ValueError("'class_ratio' must be 0, or 1 and more")
        if self.class_ratio and not self.balance:
            raise ValueError("'balance' must be above 0 where there is a class_ratio")
        if self.adaptation.steps and not self.support_size:
            raise ValueError("'support_size' must be above 0 where clients adapt")
        if self.algorithm == "fedsgd" and self.local_steps > 1:
            raise ValueError("'local_steps' must be 1 with fedsgd; set algorithm=fedavg")
        if self.privacy.noise_multiplier and self.weighted:
            raise ValueError("a private federation takes a plain mean; set weighted=false")
        return self

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

    def sample_size(self, clients: int) -> int:
        """How many of so many clients an epoch samples.

        >>> FederationConfig().sample_size(24), FederationConfig().sample_size(1)
        (9, 1)
        """
        return max(1, math.floor(self.client_fraction * clients))

    def needed(self, sampled: int) -> int:
        """How many updates of so many sampled clients a round needs.

        >>> FederationConfig().needed(9), FederationConfig().needed(1)
        (5, 1)
        """
        return max(1, math.ceil(self.robustness.quorum * sampled))

    def flat(self) -> dict[str, bool | int | float | str]:
        """All values by dotted name: what the constructor takes and Flower's messages hold."""
        found: dict[str, Any] = {}
        for name, value in self.model_dump().items():
            group = value if isinstance(value, dict) else {}
            found |= {f"{name}.{inner}": one for inner, one in group.items()} or {name: value}
        return found

    def with_values(self, values: Mapping[str, Any]) -> FederationConfig:
        """The same with other values, by dotted name."""
        return FederationConfig(**{**self.flat(), **values})

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


def _refusal(error: ValidationError) -> Refusal:
    """The first thing that is wrong, in one line."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return refuse_unknown("federation setting", name, list(FederationConfig().flat()))
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not name:
        return Refusal(message)
    return Refusal(f"federation setting '{name}' is {first['input']}; it {message}")
