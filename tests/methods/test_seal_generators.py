"""Generators see codes and noise; their output has the class and the movement that the code says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from sensorveil.classifiers import ClassifierSettings, Ensemble
from sensorveil.data.windows import Scaling, Windows
from sensorveil.errors import Refusal
from sensorveil.methods.seal_code import Encoder, Movement, movement_features
from sensorveil.methods.seal_generators import (
    Diffusion,
    GenerationSettings,
    Pool,
    crossfade,
    previous_windows,
)

LENGTH, CLASSES = 32, 3
KEPT = 40
SMALL = {
    "training_steps": 600,
    "windows_per_code": KEPT,
    "num_candidates": 8,
    "guidance_scale": 0.0,
    "sampling_steps": 6,
    "latent_size": 8,
    "autoencoder_widths": (8,),
    "denoiser_width": 48,
    "denoiser_blocks": 2,
}
"""Enough to learn which class and energy are asked for, in seconds."""


def small(**changed: Any) -> GenerationSettings:
    return GenerationSettings(**{**SMALL, **changed})


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def without_features(classes: np.ndarray) -> tuple[Movement, Encoder]:
    movement = Movement(np.zeros((len(classes), 0)), None, classes)
    return movement, Encoder(()).fit(movement, int(classes.max()) + 1)


# The pool.


def donors(count: int) -> tuple[Windows, Movement, Encoder]:
    """Windows of noise in standard units, in three classes."""
    windows = Windows.from_signal(rng().normal(size=(count, 2, 12)))
    return windows.standardized(Scaling.of(windows)), *without_features(rng(1).integers(3, size=30))


def test_the_pool_emits_donors_of_the_code_with_equal_probability() -> None:
    windows, movement, encoder = donors(30)
    codes = encoder.donor_codes(movement)
    pool = Pool(small(), encoder, Ensemble(1)).fit(windows, movement)
    asked = np.tile([0, 1, 2], 2000)
    made = pool.generate(asked, rng())
    which = np.abs(made[:, None, 0, 0] - windows.signal[None, :, 0, 0]).argmin(1)
    np.testing.assert_array_equal(made, windows.signal[which].astype(np.float32))
    np.testing.assert_array_equal(codes[which], asked)
    counts, each = np.bincount(which, minlength=30), 2000 / np.bincount(codes)[codes]
    assert (np.abs(counts - each) < 5 * np.sqrt(each)).all()
    again = Pool(small(), encoder, Ensemble(1)).restore(pool.state())
    np.testing.assert_array_equal(again.generate(asked, rng()), made)
    assert pool.emits_donors
    assert pool.membership_scores(windows, codes) is None


def test_a_code_without_donors_has_those_of_the_nearest() -> None:
    """Ten donors of growing energy in ten bins; of the two in the middle nothing is kept."""
    windows = Windows.from_signal(np.arange(10.0).reshape(10, 1, 1) * np.ones((1, 1, 8)))
    values = np.arange(10.0)[:, None]
    movement = Movement(values, None, np.zeros(10, int))
    encoder = Encoder((10,)).fit(movement, 1)
    kept = ~np.isin(np.arange(10), [4, 5])
    pool = Pool(small(), encoder, Ensemble(1)).fit(windows.select(kept), movement.select(kept))
    made = pool.generate(np.arange(10), rng())[:, 0, 0]
    np.testing.assert_array_equal(made, [0, 1, 2, 3, 3, 6, 6, 7, 8, 9])


def test_the_pool_keeps_samples_of_its_donors_alone_and_shared_ones_once() -> None:
    windows, _, _ = donors(30)
    movement, encoder = without_features(np.zeros(10, int))
    pool = Pool(small(), encoder, Ensemble(1)).fit(windows.select(slice(0, 10)), movement)
    assert pool.state()["store"].shape[-1] == 10 * windows.length
    whole = Windows.from_signal(rng().normal(size=(1, 1, 100)).astype(np.float32))
    rows = np.arange(0, 80, 5)
    overlapping = replace(
        whole,
        length=20,
        offset=rows,
        start=rows,
        recording=np.zeros(16, int),
        labels={"subject": np.zeros(16, int)},
    )
    movement, encoder = without_features(np.arange(16) % 2)
    pool = Pool(small(), encoder, Ensemble(1)).fit(overlapping, movement)
    assert pool.state()["store"].size == 95
    made = pool.generate(np.array([1]), rng())[0]
    assert any((made == one).all() for one in overlapping.signal[1::2])


def fit_diffusion(
    settings: GenerationSettings,
    encoder: Encoder,
    windows: Windows,
    movement: Movement,
    seed: int = 0,
) -> Diffusion:
    """A diffusion that is trained, with two classifiers."""
    classifiers = Ensemble(2, ClassifierSettings.quick())
    classifiers.fit_codes(windows, movement.classes, encoder.num_classes_)
    return Diffusion(settings, encoder, classifiers, seed).fit(windows, movement)


# The diffusion, on waves: the class is their number, and the energy that of their amplitude.


def waves(kind: str = "signal", count: int = 600) -> tuple[Windows, Movement]:
    """Classes 0, 1 and 2 have one, two and four waves in a window, of any phase.

    The logarithm of the amplitude is uniform over 2, so that of the energy is uniform over 4.
    """
    classes = np.arange(count) % CLASSES
    angle = 2 * np.pi * np.arange(LENGTH) / LENGTH * 2.0 ** classes[:, None]
    amplitude = np.exp(rng(1).uniform(-1, 1, (count, 1)))
    wave = amplitude * np.sin(angle + rng().uniform(0, 2 * np.pi, (count, 1)))
    signal = np.stack([wave, -wave], axis=1).astype(np.float32)
    if kind == "complex":
        signal = (signal * np.exp(0.5j)).astype(np.complex64)
    windows = Windows.from_signal(signal, sample_rate=float(LENGTH))
    windows = windows.standardized(Scaling.of(windows))
    return windows, Movement.of(windows, classes, "none", 1)


ENERGY_BINS = 5
CODES = CLASSES * ENERGY_BINS


@cache
def fitted(kind: str) -> Diffusion:
    windows, movement = waves(kind)
    encoder = Encoder((1, ENERGY_BINS, 1)).fit(movement, CLASSES)
    return fit_diffusion(small(), encoder, windows, movement)


def trained(kind: str = "signal") -> Diffusion:
    return fitted(kind)


def fresh(kind: str = "signal", **changed: Any) -> Diffusion:
    return trained(kind).with_settings(small(windows_per_code=0, **changed))


def class_of(made: np.ndarray) -> np.ndarray:
    """By the strongest frequency: 1, 2 or 4 waves, or -1 for any other number."""
    strongest = np.abs(np.fft.rfft(made[:, 0], axis=-1))[:, 1:].argmax(1) + 1
    return np.select([strongest == 1, strongest == 2, strongest == 4], [0, 1, 2], -1)


def energy_rank(made: np.ndarray, kind: str) -> np.ndarray:
    """Where the energy lies among donors, by the closed form of its distribution.

    The mean square of a sine is half of its squared amplitude. In standard units, that of all
    windows together is 1 (of a complex number, each part has a half). A uniform logarithm u from -1
    to 1 has the mean sinh(2) / 2 of e^(2u).
    """
    power = np.square(made.astype(float)).mean((1, 2)) * (2 if kind == "complex" else 1)
    amplitude = np.log(power * np.sinh(2) / 2) / 2
    return (amplitude + 1) / 2


@pytest.mark.parametrize("kind", ["signal", "complex"])
def test_the_best_of_several_has_the_class_and_the_energy_asked_for(kind: str) -> None:
    windows, _ = waves(kind)
    ranks = np.sort(energy_rank(windows.signal, kind))
    np.testing.assert_allclose(ranks, np.linspace(0, 1, 600), atol=0.06)
    np.testing.assert_array_equal(class_of(windows.signal), np.arange(600) % CLASSES)
    asked = np.repeat(np.arange(CODES), 20)
    classes, bins = trained(kind).encoder.parts(asked)
    wanted = (bins[:, 1] + 0.5) / ENERGY_BINS
    right, follows, misses = [], [], []
    for candidates in (1, 8):
        made = fresh(kind, num_candidates=candidates).generate(asked, rng())
        assert made.shape == (len(asked), *windows.shape)
        right.append((class_of(made) == classes).mean())
        ranks = energy_rank(made, kind)
        follows.append(np.corrcoef(ranks, wanted)[0, 1])
        misses.append(np.abs(ranks - wanted).mean())
    assert right[0] > 0.6  # the denoiser alone
    assert right[1] > max(0.9, right[0] + 0.05)
    assert follows[0] > 0.2
    assert follows[1] > max(0.4, follows[0] + 0.08)
    assert misses[1] < 0.92 * misses[0]


def test_the_bin_of_energy_is_hit() -> None:
    asked = np.repeat(np.arange(CODES), 40)
    bins = trained().encoder.parts(asked)[1][:, 1]
    ranks = energy_rank(fresh(num_candidates=24).generate(asked, rng()), "signal")
    means = np.array([ranks[bins == one].mean() for one in range(ENERGY_BINS)])
    np.testing.assert_allclose(means, (np.arange(ENERGY_BINS) + 0.5) / ENERGY_BINS, atol=0.15)
    assert (np.diff(means) > 0.08).all()


def test_where_in_its_bin_the_energy_lies_is_drawn_anew() -> None:
    """With one bin for all, the same networks make windows of all energies that donors have."""
    windows, movement = waves()
    encoder = Encoder((1, 1, 1)).fit(movement, CLASSES)
    settings = small(windows_per_code=0, num_candidates=24)
    diffusion = Diffusion(settings, encoder, trained().classifiers).restore(trained().state())
    made = diffusion.generate(np.repeat(np.arange(CLASSES), 150), rng())
    ranks, own = (energy_rank(one, "signal") for one in (made, windows.signal))
    assert ranks.mean() == pytest.approx(own.mean(), abs=0.12)
    assert ranks.std() == pytest.approx(own.std(), rel=0.25)


def test_noise_comes_from_what_is_handed_over_and_from_nothing_else() -> None:
    asked = np.arange(CODES)
    for diffusion in (trained(), fresh()):
        first, again, other = (diffusion.generate(asked, rng(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any((1, 2)).mean() > 0.8
    made = fresh().generate(np.full(50, 7), rng())
    assert made.std(0).mean() > 0.3  # not always the same window


def test_the_diffusion_depends_on_its_seed_alone() -> None:
    windows, movement = waves(count=60)
    encoder = Encoder((1, 2, 1)).fit(movement, CLASSES)
    settings = small(training_steps=8, windows_per_code=2)
    first, same, other = (
        fit_diffusion(settings, encoder, windows, movement, seed).generate(np.arange(6), rng())
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != other).any((1, 2)).all()


# Windows that are kept.


def distinct(made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different windows, and how often each occurs; a batch of another size rounds otherwise."""
    return np.unique(made.reshape(len(made), -1).round(4), axis=0, return_counts=True)


def test_every_output_is_one_of_the_codes_own_kept_windows() -> None:
    seen = set()
    for code in range(CODES):
        windows, counts = distinct(trained().generate(np.full(KEPT * 50, code), rng(code)))
        assert len(windows) == KEPT
        assert np.abs(counts - 50).max() < 5 * np.sqrt(50)  # all alike
        seen |= {window.tobytes() for window in windows}
    assert len(seen) == CODES * KEPT


def test_the_output_is_decoded_from_the_latents_of_its_code() -> None:
    """Other latents in the place of one code's change the output of that code and of no other."""
    diffusion, asked = trained(), np.arange(CODES)
    state = diffusion.state()
    latents = state["latents"].copy()
    assert latents.shape == (CODES * KEPT, SMALL["latent_size"])
    latents[4 * KEPT : 5 * KEPT] = latents[11 * KEPT]  # code 4 gets one window of code 11
    other = Diffusion(small(), diffusion.encoder, diffusion.classifiers).restore(
        {**state, "latents": latents}
    )
    before, after = (one.generate(asked, rng()) for one in (diffusion, other))
    np.testing.assert_array_equal((before != after).any((1, 2)), asked == 4)
    assert len(distinct(other.generate(np.full(100, 4), rng()))[0]) == 1
    assert class_of(after)[4] == class_of(other.generate(np.full(1, 11), rng()))[0]


def test_settings_say_how_many_kept_windows_are_used() -> None:
    few = trained().with_settings(small(windows_per_code=3))
    assert len(distinct(few.generate(np.full(200, 2), rng()))[0]) == 3
    anew = distinct(fresh().generate(np.full(200, 2), rng()))[0]
    assert len(anew) == 200
    kept = distinct(trained().generate(np.full(1000, 2), rng()))[0]
    assert np.abs(anew[:, None] - kept[None]).max(2).min() > 1e-3
    more = trained().with_settings(small(windows_per_code=KEPT + 1))
    with pytest.raises(Refusal, match=r"windows_per_code.*keeps 40"):
        more.generate(np.arange(3), rng())


def test_kept_windows_are_distributed_as_fresh_ones() -> None:
    """Means of the features in each class, within their sampling errors."""
    per_class = KEPT * ENERGY_BINS
    many = trained().generate(np.repeat(np.arange(CODES), 20 * KEPT), rng())
    some = fresh().generate(np.repeat(np.arange(CODES), KEPT), rng())
    kept, anew = (
        movement_features(torch.from_numpy(one), float(LENGTH)).numpy().reshape(CLASSES, -1, 3)
        for one in (many, some)
    )
    error = np.sqrt((kept.var(1) + anew.var(1)) / per_class)
    assert (np.abs(kept.mean(1) - anew.mean(1)) <= 4.5 * error + 1e-3).all()
    assert (error[:, :2] < 0.15).all()  # classes are 0.7 apart in rhythm, and bins 0.8 in energy
    np.testing.assert_allclose(kept.std(1)[:, 1:], anew.std(1)[:, 1:], rtol=0.35)


def test_a_code_that_no_donor_has_gets_the_windows_of_the_nearest_one() -> None:
    """Of class 0 nobody has the largest energy, so its last bin gets windows of the bin before."""
    windows, movement = waves(count=300)
    encoder = Encoder((1, ENERGY_BINS, 1)).fit(movement, CLASSES)
    codes = encoder.donor_codes(movement)
    missing, nearest = ENERGY_BINS - 1, ENERGY_BINS - 2
    some = codes != missing
    settings = small(training_steps=8, windows_per_code=5)
    diffusion = fit_diffusion(settings, encoder, windows.select(some), movement.select(some))
    shown = [
        {one.tobytes() for one in distinct(diffusion.generate(np.full(100, code), rng()))[0]}
        for code in (missing, nearest, nearest - 1)
    ]
    assert shown[0] == shown[1] != shown[2]
    again = Diffusion(settings, encoder, diffusion.classifiers).restore(diffusion.state())
    asked = np.arange(CODES)
    np.testing.assert_array_equal(again.generate(asked, rng()), diffusion.generate(asked, rng()))


def test_a_restored_diffusion_is_the_same_to_the_bit() -> None:
    windows, movement = waves()
    diffusion, asked = trained(), np.tile(np.arange(CODES), 3)
    again = Diffusion(small(), diffusion.encoder, diffusion.classifiers).restore(diffusion.state())
    np.testing.assert_array_equal(diffusion.generate(asked, rng()), again.generate(asked, rng()))
    scores = [one.membership_scores(windows, movement.classes) for one in (diffusion, again)]
    np.testing.assert_array_equal(*scores)
    again = again.with_settings(small(windows_per_code=0))
    np.testing.assert_array_equal(fresh().generate(asked, rng()), again.generate(asked, rng()))


# What the networks know.


def test_windows_fit_their_own_class_best() -> None:
    windows, movement = waves()
    own, other = (
        trained().membership_scores(windows, (movement.classes + shift) % CLASSES)
        for shift in (0, 1)
    )
    assert own.shape == (600,)
    assert np.isfinite(own).all()
    assert (own > other).mean() > 0.9
    # The order of windows, and which others there are, have no part in a score but by its noise.
    np.testing.assert_array_equal(
        own[:256], trained().membership_scores(windows.select(slice(256)), movement.classes[:256])
    )


def test_images_are_chosen_by_their_class_alone() -> None:
    classes = np.arange(120) % 2
    signal = 0.3 * rng().normal(size=(120, 1, 8, 8))
    signal += np.where(classes, 1.0, -1.0).reshape(-1, 1, 1, 1)
    images = Windows.from_signal(signal.astype(np.float32))
    movement, encoder = without_features(classes)
    settings = small(training_steps=100, windows_per_code=0)
    diffusion = fit_diffusion(settings, encoder, images, movement)
    asked = np.repeat([0, 1], 50)
    right = []
    for candidates in (1, 8):
        chosen = diffusion.with_settings(
            small(windows_per_code=0, num_candidates=candidates)
        ).generate(asked, rng())
        assert chosen.shape == (100, 1, 8, 8)
        right.append(((chosen.mean((1, 2, 3)) > 0) == asked).mean())
    assert right[1] > 0.95
    assert right[1] >= right[0]


@pytest.mark.parametrize("steps", [1, 5])
def test_a_very_short_training_works(steps: int) -> None:
    windows, movement = waves(count=12)
    encoder = Encoder((1, 1, 1)).fit(movement, CLASSES)
    diffusion = fit_diffusion(small(training_steps=steps), encoder, windows, movement)
    assert np.isfinite(diffusion.generate(np.arange(3), rng())).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"autoencoder_widths": ()},
        {"autoencoder_widths": (0,)},
        {"denoiser_width": 1},
        {"denoiser_blocks": 0},
        {"sampling_steps": 0},
        {"sampling_steps": 1001},
        {"num_candidates": 0},
        {"windows_per_code": -1},
        {"guidance_scale": -0.1},
        {"training_steps": 0},
        {"crossfade_seconds": -1.0},
        {"generator": "gaussian"},
    ],
)
def test_settings_without_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match=next(iter(bad))):
        GenerationSettings(**bad)


# Crossfading.


def test_only_adjacent_windows_are_crossfaded() -> None:
    recording, start = np.array([0, 0, 0, 1]), np.array([8, 0, 4, 8])
    previous = previous_windows(recording, start, 8)
    assert previous.tolist() == [1, -1, -1, -1]
    signal = rng().normal(size=(4, 2, 8))
    smooth = crossfade(signal, previous, 4)
    np.testing.assert_array_equal(smooth[1:], signal[1:])
    np.testing.assert_allclose(smooth[0, :, 0], signal[1, :, -1])
    np.testing.assert_array_equal(smooth[0, :, 4:], signal[0, :, 4:])
    # At most half of a window fades.
    np.testing.assert_array_equal(crossfade(signal, previous, 100), smooth)
