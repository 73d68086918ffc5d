"""What every method must fulfil. Run `check_method(YourMethod)` on a method of your own.

Each check is a function of a method's class and small training windows; it raises AssertionError
with a sentence. `CHECKS` lists them, so that tests can run and name them one by one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from sensorveil.data.windows import Windows
from sensorveil.errors import Refusal
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.run import load_run, save_run

Method = type[Obfuscator]
Check = Callable[[Method, Windows], None]

KEEP, HIDE = "activity", "gender"
EPOCHS, STEPS = 5, 20
"""The most that a method is trained for, in each of its parts."""


def example_windows(modality: str = "signal", seed: int = 0) -> Windows:
    """Small windows with two activities, two genders and weights, and four people.

    >>> example_windows("image").shape
    (2, 16, 16)
    """
    generator = np.random.default_rng(seed)
    count = 96
    activity, gender = np.arange(count) % 2, np.arange(count) // 2 % 2
    subject = gender * 2 + np.arange(count) // 4 % 2
    shape = (2, 16, 16) if modality == "image" else (2, 32)
    time = np.arange(shape[-1])
    wave = np.sin(time * (0.4 + 0.6 * activity[:, None])) * (1 + 0.5 * gender[:, None])
    signal = generator.normal(size=(count, *shape)) * 0.2
    signal += wave.reshape(count, *(1,) * (len(shape) - 1), -1)
    if modality == "complex":
        signal = signal + 1j * generator.normal(size=signal.shape)
    labels = {KEEP: activity, HIDE: gender, "weight": gender ^ (subject % 2), "subject": subject}
    # Units of their own per channel, as real sensors have: gravity is not angular velocity.
    scale = np.array([9.81, 0.02]).reshape(1, 2, *(1,) * (len(shape) - 1))
    return Windows.from_signal(signal * scale + 5 * scale, labels, sample_rate=50.0)


def _fitted(made: Method, windows: Windows) -> Obfuscator:
    return _short(made).fit(windows, keep=KEEP, hide=HIDE)


def _short(made: Method) -> Obfuscator:
    """One that is trained for few epochs or steps: nothing here depends on how much it learns."""
    few: dict[str, Any] = {
        name: min(value, limit)
        for name, value in made().settings.flat().items()
        for ending, limit in (("epochs", EPOCHS), ("training_steps", STEPS))
        if name.endswith(ending) and isinstance(value, int)
    }
    return made(seed=1, **few)


def check_constructor_only_stores(made: Method, windows: Windows) -> None:
    """A new object has learnt nothing, and refuses to obfuscate."""
    obfuscator = made()
    learnt = [name for name in vars(obfuscator) if name.endswith("_")]
    assert not learnt, f"the constructor learnt {learnt}"
    _refuses(lambda: obfuscator.obfuscate(windows), "obfuscate before fit")


def check_output_fits_the_input(made: Method, windows: Windows) -> None:
    """Same number, order, shape, rate, labels and kind of numbers; finite; input untouched."""
    before = windows.signal
    hidden = _fitted(made, windows).obfuscate(windows, seed=1)
    assert len(hidden) == len(windows), "the number of windows changed"
    assert hidden.shape == windows.shape, "the shape changed"
    assert hidden.sample_rate == windows.sample_rate, "the rate changed"
    assert hidden.channels == windows.channels, "the channels changed"
    assert hidden.store.dtype == windows.store.dtype, "the kind of numbers changed"
    assert np.isfinite(hidden.signal).all(), "the output is not finite"
    assert (hidden.start == windows.start).all(), "the order changed"
    for name in windows.attributes:
        assert (hidden.labels[name] == windows.labels[name]).all(), f"label {name} changed"
    assert (windows.signal == before).all(), "the input was changed"


def check_units_are_kept(made: Method, windows: Windows) -> None:
    """Data in other units gives the same output in those units.

    The factors are powers of two, so that nothing is rounded: training can make much of little.
    """
    factor = np.array([1024.0, 0.25]).reshape(2, *(1,) * (len(windows.shape) - 1))
    other = windows.replaced(windows.signal * factor)
    plain = _fitted(made, windows).obfuscate(windows, seed=1).signal
    scaled = _fitted(made, other).obfuscate(other, seed=1).signal
    wanted = plain * factor
    rest = (0, *range(2, wanted.ndim))
    limit = 0.05 * wanted.std(rest, keepdims=True)
    # A classifier may read a window on the border otherwise after rounding: nearly all must agree.
    close = (np.abs(scaled - wanted) < limit).reshape(len(windows), -1).all(1).mean()
    assert close > 0.9, f"only {close:.0%} of the windows kept their units"


def check_seed_decides(made: Method, windows: Windows) -> None:
    """The same seed gives the same; without one, a random method never repeats itself."""
    obfuscator = _fitted(made, windows)
    again = _fitted(made, windows)
    first = obfuscator.obfuscate(windows, seed=3).signal
    assert (first == obfuscator.obfuscate(windows, seed=3).signal).all(), "same seed, other output"
    assert (first == again.obfuscate(windows, seed=3).signal).all(), "same training, other output"
    repeats = bool(
        (obfuscator.obfuscate(windows).signal == obfuscator.obfuscate(windows).signal).all()
    )
    assert repeats != made.capabilities.random, "`random` in the capabilities is not true"


def check_round_trip(made: Method, windows: Windows) -> None:
    """A run that was saved and loaded does the same; its folder holds the four files."""
    obfuscator = _fitted(made, windows)
    with tempfile.TemporaryDirectory() as place:
        folder = save_run(obfuscator, Path(place) / "run")
        loaded = load_run(folder)
        _refuses(lambda: save_run(obfuscator, folder), "save over a run")
    same = loaded.obfuscate(windows, seed=2).signal == obfuscator.obfuscate(windows, seed=2).signal
    assert same.all(), "the loaded run gives another output"
    assert loaded.policy_ == obfuscator.policy_, "the loaded run has another policy"


def check_labels_are_not_used(made: Method, windows: Windows) -> None:
    """A method that does not need the wearer's labels gives the same whatever they are."""
    if made.capabilities.needs_wearer:
        return
    obfuscator = _fitted(made, windows)
    blind = replace(windows, labels={n: np.zeros_like(c) for n, c in windows.labels.items()})
    same = (
        obfuscator.obfuscate(windows, seed=4).signal == obfuscator.obfuscate(blind, seed=4).signal
    )
    assert same.all(), "the output depends on labels that the method says it does not need"


def check_what_is_learnt(made: Method, windows: Windows) -> None:
    """A method that learns nothing does the same after training on windows run backwards."""
    if made.capabilities.learns:
        return
    backwards = windows.replaced(windows.signal[..., ::-1])  # the same mean and deviation
    plain, other = (
        _fitted(made, one).obfuscate(windows, seed=1).signal for one in (windows, backwards)
    )
    limit = 1e-4 * np.abs(plain).max()
    assert (np.abs(plain - other) <= limit).all(), "`learns` in the capabilities is not true"


def check_membership_scores(made: Method, windows: Windows) -> None:
    """One finite number a window, the same every time; or no score at all."""
    obfuscator = _fitted(made, windows)
    scores = obfuscator.membership_scores(windows)
    assert (scores is not None) == bool(made.membership_score), "`membership_score` is not true"
    if scores is None:
        return
    assert scores.shape == (len(windows),), "there is not one score a window"
    assert np.isfinite(scores).all(), "a score is not finite"
    again = obfuscator.membership_scores(windows)
    assert np.array_equal(scores, np.asarray(again)), "scores are not the same twice"


def check_strengths(made: Method, windows: Windows) -> None:
    """An unknown strength is refused, and so are NaN, infinities and too few numbers."""
    obfuscator = _fitted(made, windows)
    _refuses(
        lambda: obfuscator.obfuscate(windows, {"no such strength": 1.0}), "take an unknown strength"
    )
    for name in obfuscator.strength_names():
        for bad in (np.nan, np.inf, np.ones(len(windows) - 1)):
            bad_strength = {name: bad}
            _refuses(partial(obfuscator.obfuscate, windows, bad_strength), f"take {name}={bad}")


def check_bad_windows(made: Method, windows: Windows) -> None:
    """NaN, infinities, no windows, and windows of another shape are refused."""
    obfuscator = _fitted(made, windows)
    for bad in (np.nan, np.inf):
        signal = windows.signal
        signal.reshape(-1)[5] = bad
        spoilt = windows.replaced(signal)
        _refuses(lambda s=spoilt: obfuscator.obfuscate(s), f"obfuscate {bad}")  # type: ignore[misc]
        _refuses(lambda s=spoilt: _fitted(made, s), f"train on {bad}")  # type: ignore[misc]
    _refuses(lambda: obfuscator.obfuscate(windows.select([])), "obfuscate nothing")
    narrow = Windows.from_signal(windows.signal[:, :1])
    short = Windows.from_signal(windows.signal[..., :-1])
    _refuses(lambda: obfuscator.obfuscate(narrow), "obfuscate too few channels")
    _refuses(lambda: obfuscator.obfuscate(short), "obfuscate too short a window")


def check_policies(made: Method, windows: Windows) -> None:
    """Unknown, doubled and one-class attributes are refused; several as the capabilities say."""
    able = made.capabilities
    one_class = replace(windows, labels={**windows.labels, HIDE: np.zeros(len(windows), int)})
    _refuses(lambda: made().fit(windows, keep="nonsense", hide=HIDE), "keep the unknown")
    _refuses(lambda: made().fit(windows, keep=KEEP, hide=KEEP), "keep and hide the same")
    _refuses(lambda: made().fit(windows, keep=[], hide=HIDE), "keep nothing")
    _refuses(lambda: made().fit(one_class, keep=KEEP, hide=HIDE), "hide one class")
    for allowed, keep, hide in (
        (able.several_keeps, (KEEP, "weight"), (HIDE,)),
        (able.several_hides, (KEEP,), (HIDE, "weight")),
    ):
        if allowed:
            _short(made).fit(windows, keep=keep, hide=hide).obfuscate(windows)
        else:
            _refuses(lambda k=keep, h=hide: made().fit(windows, k, h), "take several")  # type: ignore[misc]


def check_new_hide(made: Method, windows: Windows) -> None:
    """One more hidden attribute without training all again, or a refusal; the old one stays."""
    obfuscator = _fitted(made, windows)
    before = obfuscator.obfuscate(windows, seed=5).signal
    if not made.capabilities.new_hide_without_generator:
        _refuses(lambda: obfuscator.add_hidden(windows, "weight"), "hide one more attribute")
        return
    more = obfuscator.add_hidden(windows, "weight")
    assert more.policy_.hide == (HIDE, "weight"), "the new attribute is not hidden"
    more.obfuscate(windows, seed=5)
    assert obfuscator.policy_.hide == (HIDE,), "the old one hides more as well"
    assert (obfuscator.obfuscate(windows, seed=5).signal == before).all(), "the old one changed"
    short = Windows.from_signal(windows.signal[..., :-1], windows.labels)
    for bad, name in ((windows, HIDE), (windows, KEEP), (windows, "nonsense"), (short, "weight")):
        _refuses(lambda b=bad, n=name: obfuscator.add_hidden(b, n), f"add {name}")  # type: ignore[misc]


def check_settings(made: Method, windows: Windows) -> None:
    """Every preset builds; unknown presets and settings are refused."""
    assert "fast" in made.presets, "there is no preset 'fast'"
    for preset in made.presets:
        made(preset)
    _refuses(lambda: made("no such preset"), "take an unknown preset")
    _refuses(lambda: made(no_such_setting=1), "take an unknown setting")


def check_parameters(made: Method, windows: Windows) -> None:
    """scikit-learn's `clone`, `get_params` and `set_params` give the same method, not fitted."""
    for preset in made.presets:
        obfuscator = made(preset, seed=3)
        params = obfuscator.get_params()
        assert set(params) == {"preset", "seed", "device", *made.Settings.names()}
        for other in (clone(obfuscator), made().set_params(**params)):
            assert type(other) is made, "clone gives another class"
            assert other.get_params() == params, f"clone of preset {preset} has other parameters"
    fitted = _fitted(made, windows)
    _refuses(lambda: clone(fitted).obfuscate(windows), "obfuscate with a clone that was not fitted")
    _refuses(lambda: fitted.set_params(no_such_setting=1), "set an unknown parameter")
    fitted.obfuscate(windows)  # a refused change leaves it as it was
    fitted.set_params(seed=4)
    _refuses(lambda: fitted.obfuscate(windows), "obfuscate with parameters it was not fitted with")


def check_modalities(made: Method, windows: Windows) -> None:
    """Every modality it claims works; every other is refused."""
    for modality in ("signal", "complex", "image"):
        other = example_windows(modality).select(slice(0, 24)).compact()
        if modality in made.capabilities.modalities:
            hidden = _fitted(made, other).obfuscate(other, seed=1)
            assert hidden.shape == other.shape, f"{modality} windows changed their shape"
            assert hidden.is_complex == other.is_complex, f"{modality} changed kind"
        else:
            _refuses(lambda o=other: _fitted(made, o), f"take {modality} windows")  # type: ignore[misc]


CHECKS: tuple[Check, ...] = (
    check_constructor_only_stores,
    check_output_fits_the_input,
    check_units_are_kept,
    check_seed_decides,
    check_round_trip,
    check_labels_are_not_used,
    check_what_is_learnt,
    check_membership_scores,
    check_strengths,
    check_bad_windows,
    check_policies,
    check_new_hide,
    check_settings,
    check_parameters,
    check_modalities,
)


def check_method(made: Method) -> None:
    """Runs all checks on small windows; raises AssertionError with a sentence at the first fault.

    >>> from sensorveil import NoObfuscation
    >>> check_method(NoObfuscation)
    """
    for check in CHECKS:
        check(made, example_windows())


def _refuses(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except Refusal:
        return
    raise AssertionError(f"it did not refuse to {what}")
