"""What a trained generator promises to those whose windows it learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Guarantee:
    """An epsilon with its delta and its unit, or none of them; `why` says why in either case.

    There is an epsilon only where every update that saw private windows was clipped and noised.

    >>> print(Guarantee(4.0312, 1e-5, "one window", "all updates were clipped and noised"))
    epsilon 4.03 at delta 1e-05 for one window: all updates were clipped and noised
    >>> print(Guarantee.none("trained without noise"))
    no epsilon: trained without noise
    """

    epsilon: float | None
    delta: float | None
    unit: str | None
    why: str

    @classmethod
    def none(cls, why: str) -> Guarantee:
        """No promise, and the reason."""
        return cls(None, None, None, why)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Guarantee:
        """What `as_dict` gave."""
        return cls(**stored)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"no epsilon: {self.why}"
        return f"epsilon {self.epsilon:.2f} at delta {self.delta:g} for {self.unit}: {self.why}"
