"""Settings of a method: typed values with limits, in groups where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from sensorveil.classifiers import ClassifierSettings
from sensorveil.errors import Refusal, refuse_unknown


class Settings(BaseModel):
    """Base class of a method's settings; a field that is itself `Settings` is a group.

    Limits are declared with pydantic's `Field`. Limits on several settings together go into
    `check`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _refusal(error) from None

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Refuse values that make no sense together."""

    def require(self, holds: bool, name: str, limit: str) -> None:
        """Refuse the setting `name` unless its limit holds."""
        if not holds:
            raise Refusal(f"setting '{name}' is {getattr(self, name)}; it must be {limit}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, groups as dictionaries."""
        return self.model_dump()

    def flat(self) -> dict[str, Any]:
        """Plain values by their full names, such as "training.epochs"."""
        return dict(_flattened(self.as_dict()))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The full names of all settings."""
        found: list[str] = []
        for name, entry in cls.model_fields.items():
            group = entry.annotation
            if isinstance(group, type) and issubclass(group, Settings):
                found += [f"{name}.{inner}" for inner in group.names()]
            else:
                found.append(name)
        return tuple(found)

    @classmethod
    def full_name(cls, name: str, of: str = "this method") -> str:
        """The full name of a setting that may be given without its group."""
        known = cls.names()
        if name in known:
            return name
        found = [one for one in known if one.rpartition(".")[2] == name]
        if len(found) > 1:
            raise Refusal(f"setting '{name}' could be {' or '.join(found)}; name one of them")
        if not found:
            raise refuse_unknown(f"setting of {of}", name, known)
        return found[0]

    def with_changes(self, changes: Mapping[str, Any], of: str = "this method") -> Self:
        """Other values for some settings, by full name, by name, or a dictionary for a group.

        Text is converted to the type of the setting.
        """
        values = self.as_dict()
        for name, value in changes.items():
            if isinstance(value, Mapping) and name in type(self).model_fields:
                for inner, one in _flattened(value):
                    _put(values, type(self).full_name(f"{name}.{inner}", of), one)
            else:
                _put(values, type(self).full_name(name, of), value)
        return type(self)(**values)


class ClassifierGroup(Settings):
    """Settings of a method's own classifiers; see `ClassifierSettings`.

    Parameters
    ----------
    width
        Filters of each convolution.
    epochs, batch_size, learning_rate
        Of its training.
    """

    width: PositiveInt = 24
    epochs: PositiveInt = 12
    batch_size: PositiveInt = 64
    learning_rate: PositiveFloat = 4e-3

    def settings(self) -> ClassifierSettings:
        """The settings of one classifier."""
        return ClassifierSettings(self.width, self.epochs, self.batch_size, self.learning_rate)


def _flattened(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in _flattened(value))
        else:
            yield name, value


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        values = values[group]
    is_text_list = isinstance(value, str) and isinstance(values[last], tuple)
    values[last] = value.replace("-", ",").split(",") if is_text_list else value


def _refusal(error: ValidationError) -> Refusal:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Refusal):  # from `check`, or from a group
        return Refusal(str(cause).replace("setting '", f"setting '{name}.", 1)) if name else cause
    reason = first["msg"].replace("Input should", "it should")
    return Refusal(f"setting '{name}' is {first['input']}; {reason}")
