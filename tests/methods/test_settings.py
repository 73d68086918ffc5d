"""Settings: groups, names without a group, text, limits and one-line refusals."""

import pytest
from pydantic import Field

from sensorveil.errors import Refusal
from sensorveil.methods.settings import Settings


class Training(Settings):
    epochs: int = Field(80, gt=0)
    sizes: tuple[int, ...] = (32, 64)


class Sampling(Settings):
    epochs: int = 1
    steps: int = 10


class Example(Settings):
    guidance_scale: float = 2.0
    training: Training = Training()
    sampling: Sampling = Sampling()

    def check(self) -> None:
        self.require(self.guidance_scale < 100, "guidance_scale", "below 100")


def test_changes_by_full_name_by_name_and_by_group() -> None:
    changed = Example().with_changes(
        {"training.epochs": 5, "steps": "3", "training": {"sizes": "8-16"}, "guidance_scale": "1e1"}
    )
    assert changed.flat() == {
        "guidance_scale": 10.0,
        "training.epochs": 5,
        "training.sizes": (8, 16),
        "sampling.epochs": 1,
        "sampling.steps": 3,
    }
    assert Example.names() == tuple(changed.flat())
    assert Example().with_changes(changed.as_dict()) == changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.epochs": 0}, "setting 'training.epochs' is 0; it should be greater than 0"),
        ({"steps": "many"}, "setting 'sampling.steps' is many; it should be a valid integer"),
        ({"epochs": 5}, "could be training.epochs or sampling.epochs"),
        ({"epoch": 5}, "setting of this method 'epoch' is unknown; known: guidance_scale"),
        ({"guidance_scale": float("nan")}, "setting 'guidance_scale' is nan; .* finite"),
        ({"guidance_scale": 100}, "setting 'guidance_scale' is 100.0; it must be below 100"),
    ],
)
def test_bad_changes_are_refused_in_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        Example().with_changes(changes)


def test_settings_cannot_be_assigned() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Example().guidance_scale = 3.0
