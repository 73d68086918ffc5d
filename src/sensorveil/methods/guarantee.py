"""Differential privacy: of the people whose windows a generator learnt from, or of the wearer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Guarantee:
    """An epsilon with its delta and its unit, or none of them, and the reason.

    A generator has an epsilon only where every update that saw private windows was clipped and
    noised. A local epsilon is about the wearer's own window: its delta is 0.

    Parameters
    ----------
    epsilon, delta
        The guarantee; both None without one.
    unit
        What the guarantee is about: one window, all windows of one person.
    why
        The reason why there is a guarantee, or none.

    Examples
    --------
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
        delta = f" at delta {self.delta:g}" if self.delta else ""
        return f"epsilon {self.epsilon:.2f}{delta} for {self.unit}: {self.why}"
