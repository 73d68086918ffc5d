"""Splits: the people and recordings of training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from sensorveil.data.corpus import Corpus
from sensorveil.data.protocol import Protocol, SplitRule
from sensorveil.data.windows import Origin, Windows
from sensorveil.errors import Refusal


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """A dataset divided.

    Parameters
    ----------
    train : Windows
        All that a method may be trained on.
    test : Windows
        Looked at once, at the end.
    fitting, validation : Windows
        Two disjoint parts of `train`: to choose a setting, fit on `fitting` and look at
        `validation`.
    """

    train: Windows
    test: Windows
    fitting: Windows
    validation: Windows

    def __repr__(self) -> str:
        lines = (f"  {field.name}: {getattr(self, field.name)!r}" for field in fields(self))
        return "\n".join(["<Split", *lines, ">"])

    def training_windows(self, origin: Origin | None) -> Windows:
        """The windows that a run of this origin was trained on: `fitting` or `train`."""
        return self.fitting if origin and origin.subset == "fitting" else self.train

    def for_validation(self) -> Split:
        """The split with validation windows in the place of test windows, for choosing settings.

        Examples
        --------
        >>> from sensorveil.data.catalog import load
        >>> split = load("simulated", "recording", people=4).for_validation()
        >>> split.train.origin.subset, split.test.origin.subset
        ('fitting', 'validation')
        """
        return Split(self.fitting, self.validation, self.fitting, self.validation)


def split_windows(
    windows: Windows, corpus: Corpus, protocol: Protocol, split: str | None, fold: int = 0
) -> Split:
    """Divides windows by one of the protocol's splits.

    Parameters
    ----------
    windows : Windows
        All windows of a dataset.
    corpus : Corpus
        The recordings behind them.
    protocol : Protocol
        The dataset's protocol.
    split : str, optional
        The name of the split; default: the protocol's default.
    fold : int, default 0
        Which fold of people is the test.
    """
    name, rule = protocol.rule(split)
    if fold and rule.by != "subject":
        raise Refusal(f"split '{name}' has no folds; only splits by subject do")
    if not 0 <= fold < rule.folds:
        raise Refusal(f"fold {fold} of split '{name}' does not exist; it has 0 to {rule.folds - 1}")
    is_test = _test_mask(windows, corpus, rule, fold)
    train = windows.select(~is_test)
    is_validation = _validation_mask(train, corpus, rule)
    subsets = {
        "train": train,
        "test": windows.select(is_test),
        "fitting": train.select(~is_validation),
        "validation": train.select(is_validation),
    }
    for subset, content in subsets.items():
        if not len(content):
            raise Refusal(
                f"split '{name}' of {protocol.dataset} leaves no window for {subset}; there are"
                f" {len(corpus.recordings)} recordings of {len(corpus.classes['subject'])} people"
            )
    origin = Origin(protocol.dataset, name, fold, protocol.digest, subset="")
    return Split(
        **{
            subset: replace(content, origin=replace(origin, subset=subset))
            for subset, content in subsets.items()
        }
    )


def _test_mask(windows: Windows, corpus: Corpus, rule: SplitRule, fold: int) -> np.ndarray:
    if rule.by == "label":
        chosen = np.isin(_fact(corpus, rule.label), rule.test_values)
        return chosen[windows.recording]
    rng = np.random.default_rng(rule.seed)
    if rule.by == "subject":
        return _people_mask(windows, rule, rule.folds, fold, rng)
    return _random_mask(windows, corpus, rule, rule.test, rng)


def _validation_mask(train: Windows, corpus: Corpus, rule: SplitRule) -> np.ndarray:
    """The part of training that is put aside, chosen in the same way as the test."""
    rng = np.random.default_rng(rule.seed + 1)
    if rule.by == "subject":
        people = len(np.unique(train.subject))
        folds = min(max(2, round(1 / rule.validation)), people)
        return _people_mask(train, rule, folds, 0, rng)
    return _random_mask(train, corpus, rule, rule.validation, rng)


def _people_mask(
    windows: Windows, rule: SplitRule, folds: int, fold: int, rng: np.random.Generator
) -> np.ndarray:
    """People dealt to folds like cards, those of one class after another."""
    people, first = np.unique(windows.subject, return_index=True)
    if len(people) < max(folds, 2):
        raise Refusal(f"{len(people)} people are too few to be dealt to {max(folds, 2)} folds")
    order = _order_by_class(windows, first, rule.within, rng)
    fold_of = np.empty(len(people), int)
    fold_of[order] = np.arange(len(people)) % folds
    return (fold_of == fold)[np.searchsorted(people, windows.subject)]


def units(windows: Windows, corpus: Corpus, rule: SplitRule) -> np.ndarray:
    """The unit that each window is drawn with: its recording, or all that share a label."""
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
    share: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """A share of the recordings (or windows), spread evenly over the classes in `within`."""
    if rule.by == "window":
        first = unit_of = np.arange(len(windows))
    else:
        unit = units(windows, corpus, rule)
        _, first, unit_of = np.unique(unit, return_index=True, return_inverse=True)
    order = _order_by_class(windows, first, rule.within, rng)
    # Along that order, every 1/share-th is taken: small classes are served in turn.
    steps = np.floor((np.arange(len(order) + 1) + rng.random()) * share)
    chosen = np.empty(len(order), bool)
    chosen[order] = np.diff(steps) > 0
    return chosen[unit_of]


def _order_by_class(
    windows: Windows, first: np.ndarray, within: tuple[str, ...], rng: np.random.Generator
) -> np.ndarray:
    """A random order in which those of one class (of the attributes in `within`) are together."""
    keys = [windows.codes(name)[first] for name in reversed(within)]
    return np.lexsort([rng.random(len(first)), *keys])
