"""A policy: the attributes to keep and the attributes to hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sensorveil.data.windows import UNKNOWN, Windows
from sensorveil.errors import Refusal


@dataclass(frozen=True)
class Policy:
    """What the application needs (keep) and what is to be hidden; every other one is unlisted.

    >>> Policy.of("activity", ["gender", "weight"])
    Policy(keep=('activity',), hide=('gender', 'weight'))
    """

    keep: tuple[str, ...]
    hide: tuple[str, ...]

    @classmethod
    def of(cls, keep: str | Sequence[str], hide: str | Sequence[str]) -> Policy:
        """A policy from one name or several; both lists must be there and differ."""
        policy = cls(_names(keep), _names(hide))
        if not policy.keep or not policy.hide:
            raise Refusal("a policy needs at least one attribute to keep and one to hide")
        both = set(policy.keep) & set(policy.hide)
        if both:
            raise Refusal(f"attribute '{min(both)}' cannot be kept and hidden at once")
        return policy

    def check(self, windows: Windows) -> None:
        """Refuses unknown attributes and those that have one class only in these windows."""
        for name in (*self.keep, *self.hide):
            codes = windows.codes(name)
            present = np.unique(codes[codes != UNKNOWN])
            if len(present) < 2:
                raise Refusal(
                    f"attribute '{name}' has {len(present)} class in the training windows;"
                    " there is nothing to keep or hide"
                )

    def role(self, attribute: str) -> str:
        """keep, hide or unlisted."""
        if attribute in self.keep:
            return "keep"
        return "hide" if attribute in self.hide else "unlisted"


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if len(set(names)) != len(names):
        raise Refusal(f"an attribute is named twice in {', '.join(names)}")
    return names
