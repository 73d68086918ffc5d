"""Splits: who and what is trained on, chosen on, and tested on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sensorveil.data.corpus import Corpus
from sensorveil.data.protocol import Protocol, SplitRule
from sensorveil.data.windows import Origin, Windows
from sensorveil.errors import Refusal


@dataclass(frozen=True, eq=False)
class Split:
    """A dataset divided.

    `train` is all that may be learnt from, `test` is looked at once, at the end. Whatever is
    chosen (a strength, a level, when to stop) is chosen by fitting on `fitting` and looking at
    `validation`: the two are disjoint parts of `train`.
    """

    train: Windows
    test: Windows
    fitting: Windows
    validation: Windows

    def learnt(self, origin: Origin | None) -> Windows:
        """What a run whose windows were of this origin was trained on: `fitting` or `train`."""
        return self.fitting if origin and origin.part == "fitting" else self.train

    def before_testing(self) -> Split:
        """Validation windows take the place of test windows, which nothing is chosen by.

        >>> from sensorveil.data.catalog import load
        >>> look = load("simulated", "recording", people=4).before_testing()
        >>> look.train.origin.part, look.test.origin.part
        ('fitting', 'validation')
        """
        return Split(self.fitting, self.validation, self.fitting, self.validation)


def split_windows(
    windows: Windows, corpus: Corpus, protocol: Protocol, split: str | None, fold: int = 0
) -> Split:
    """Divides windows by one of the protocol's splits."""
    name, rule = protocol.rule(split)
    if fold and rule.by != "subject":
        raise Refusal(f"split '{name}' has no folds; only splits by subject do")
    if not 0 <= fold < rule.folds:
        raise Refusal(f"fold {fold} of split '{name}' does not exist; it has 0 to {rule.folds - 1}")
    test = _test_mask(windows, corpus, rule, fold)
    train = windows.select(~test)
    held = _validation_mask(train, corpus, rule)
    parts = {"train": ~test, "test": test, "fitting": ~held, "validation": held}
    for part, mask in parts.items():
        if not mask.any():
            raise Refusal(
                f"split '{name}' of {protocol.dataset} leaves no window for {part}; there are"
                f" {len(corpus.recordings)} recordings of {len(corpus.classes['subject'])} people"
            )
    chosen = {
        "train": train,
        "test": windows.select(test),
        "fitting": train.select(~held),
        "validation": train.select(held),
    }
    origin = Origin(protocol.dataset, name, fold, protocol.digest, part="")
    return Split(
        **{
            part: replace(content, origin=replace(origin, part=part))
            for part, content in chosen.items()
        }
    )


def _test_mask(windows: Windows, corpus: Corpus, rule: SplitRule, fold: int) -> np.ndarray:
    if rule.by == "label":
        chosen = np.isin(_fact(corpus, rule.label), rule.test_values)
        return chosen[windows.recording]
    generator = np.random.default_rng(rule.seed)
    if rule.by == "subject":
        return _people_mask(windows, rule, rule.folds, fold, generator)
    return _random_mask(windows, corpus, rule, rule.test, generator)


def _validation_mask(train: Windows, corpus: Corpus, rule: SplitRule) -> np.ndarray:
    """The part of training that is put aside, of the same kind as the test part."""
    generator = np.random.default_rng(rule.seed + 1)
    if rule.by == "subject":
        people = len(np.unique(train.subject))
        folds = min(max(2, round(1 / rule.validation)), people)
        return _people_mask(train, rule, folds, 0, generator)
    return _random_mask(train, corpus, rule, rule.validation, generator)


def _people_mask(
    windows: Windows, rule: SplitRule, folds: int, fold: int, rng: np.random.Generator
) -> np.ndarray:
    """People dealt to folds like cards, those of one class after another."""
    people, first = np.unique(windows.subject, return_index=True)
    if len(people) < max(folds, 2):
        raise Refusal(f"{len(people)} people are too few to be dealt to {max(folds, 2)} folds")
    order = _spread(windows, first, rule.within, rng)
    dealt = np.empty(len(people), int)
    dealt[order] = np.arange(len(people)) % folds
    return (dealt == fold)[np.searchsorted(people, windows.subject)]


def units(windows: Windows, corpus: Corpus, rule: SplitRule) -> np.ndarray:
    """What is drawn as one: the recording, or all recordings that share a label."""
    if not rule.together:
        return windows.recording
    _, shared = np.unique(_fact(corpus, rule.together), return_inverse=True)
    return shared[windows.recording]


def _fact(corpus: Corpus, label: str) -> tuple[str, ...]:
    if label not in corpus.facts:
        raise Refusal(f"the split needs the label '{label}', which no recording has")
    return corpus.facts[label]


def _random_mask(
    windows: Windows,
    corpus: Corpus,
    rule: SplitRule,
    part: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """A part of the recordings (or windows), spread evenly over the classes in `within`."""
    if rule.by == "window":
        first, group = np.arange(len(windows)), np.arange(len(windows))
    else:
        unit = units(windows, corpus, rule)
        _, first, group = np.unique(unit, return_index=True, return_inverse=True)
    order = _spread(windows, first, rule.within, rng)
    # Along that order, every 1/part-th is taken: small classes are served in turn.
    steps = np.floor((np.arange(len(order) + 1) + rng.random()) * part)
    chosen = np.empty(len(order), bool)
    chosen[order] = np.diff(steps) > 0
    return chosen[group]


def _spread(
    windows: Windows, first: np.ndarray, within: tuple[str, ...], rng: np.random.Generator
) -> np.ndarray:
    """A random order in which those of one class (of the attributes in `within`) are together."""
    keys = [windows.codes(name)[first] for name in reversed(within)]
    return np.lexsort([rng.random(len(first)), *keys])
