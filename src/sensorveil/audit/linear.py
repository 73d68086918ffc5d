"""A linear classifier for many features and several attributes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from sensorveil.data.windows import UNKNOWN

_PARTS = 4
"""Parts of the training windows, each left out once."""
_SHRINKAGE = np.logspace(-3, 3, 13)
_SMALLEST = 1e-9


class LinearClassifier:
    """Ridge regression on the classes of all attributes, with calibrated probabilities.

    Rocket's linear head is a ridge classifier too. The shrinkage of each attribute and the scale of
    its scores are those that predict left out groups of training windows best.

    Parameters
    ----------
    device
        Where the matrices are.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> gender = rng.integers(2, size=400)
    >>> features = rng.normal(size=(400, 5)) + gender[:, None]
    >>> model = LinearClassifier().fit(features, {"gender": gender}, {"gender": 2}, gender * 0)
    >>> bool((model.predict_log_proba(features)["gender"].argmax(1) == gender).mean() > 0.8)
    True
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def fit(
        self,
        features: np.ndarray | torch.Tensor,
        labels: Mapping[str, np.ndarray],
        num_classes: Mapping[str, int],
        groups: np.ndarray,
    ) -> LinearClassifier:
        """Learn all attributes; UNKNOWN classes are left out.

        Parameters
        ----------
        features : array of shape (n, features)
            One row for each window.
        labels, num_classes
            The class of each window and the number of classes, by attribute.
        groups : array of shape (n,)
            Windows that are left out together.
        """
        x = self._on_device(features)
        deviation, self.mean_ = torch.std_mean(x, 0, correction=0)
        constant = deviation <= 1e-6 * (1 + self.mean_.abs())
        self.deviation_ = deviation.masked_fill(constant, torch.inf)
        x = self._standard(x)
        names, group = np.unique(groups, return_inverse=True)
        if len(names) < _PARTS:  # one group, or none that is known: windows are left out singly
            group = np.arange(len(features))
        part = torch.from_numpy(
            np.random.default_rng(0).permutation(group.max() + 1)[group] % _PARTS
        )
        part = part.to(self.device)
        targets, self.columns_, first = [], {}, 0
        for name, codes in labels.items():
            targets.append(np.eye(num_classes[name] + 1)[codes][:, :-1])  # UNKNOWN is all zeros
            self.columns_[name] = slice(first, first + num_classes[name])
            first += num_classes[name]
        y = torch.from_numpy(np.hstack(targets)).to(x)
        known = {name: codes != UNKNOWN for name, codes in labels.items()}
        self.prior_ = {
            name: np.maximum(y[:, own].sum(0).cpu().numpy() / known[name].sum(), _SMALLEST)
            for name, own in self.columns_.items()
        }
        centre = np.concatenate([self.prior_[name] for name in labels])
        mask = torch.from_numpy(
            np.repeat(np.stack(list(known.values()), 1), [num_classes[n] for n in labels], axis=1)
        ).to(x)
        residual = (y - torch.from_numpy(centre).to(x)) * mask
        grams = torch.stack([x[part == one].T @ x[part == one] for one in range(_PARTS)])
        moments = torch.stack([x[part == one].T @ residual[part == one] for one in range(_PARTS)])
        held = torch.empty((len(_SHRINKAGE), *y.shape), device=self.device, dtype=x.dtype)
        for one in range(_PARTS):
            rows = part == one
            fitted = self._solve(grams.sum(0) - grams[one], moments.sum(0) - moments[one])
            held[:, rows] = torch.einsum("nf,sfk->snk", x[rows], fitted)
        weights = self._solve(grams.sum(0), moments.sum(0))
        error = ((held - residual) * mask).square().sum(1)
        self.weights_, self.scale_ = {}, {}
        for name, own in self.columns_.items():
            best = int(error[:, own].sum(1).argmin())
            self.weights_[name] = weights[best][:, own]
            rows = known[name]
            self.scale_[name] = self._best_scale(
                held[best][:, own].cpu().numpy()[rows], labels[name][rows], self.prior_[name]
            )
        return self

    def predict_log_proba(self, features: np.ndarray | torch.Tensor) -> dict[str, np.ndarray]:
        """Log-probability of each class of each attribute, (n, classes)."""
        x = self._standard(self._on_device(features))
        return {
            name: _log_proba((x @ weights).cpu().numpy(), self.scale_[name], self.prior_[name])
            for name, weights in self.weights_.items()
        }

    def _on_device(self, features: np.ndarray | torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(features, dtype=torch.float32, device=self.device)

    def _standard(self, features: torch.Tensor) -> torch.Tensor:
        return (features - self.mean_) / self.deviation_

    def _solve(self, gram: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """Coefficients (shrinkages, features, classes) for each shrinkage."""
        values, vectors = torch.linalg.eigh(gram.double())
        rotated = vectors.T @ moment.double()
        size = values.clamp_min(0)
        shrinkage = torch.from_numpy(_SHRINKAGE).to(size) * size.mean().clamp_min(1e-9)
        scaled = rotated[None] / (size[None, :, None] + shrinkage[:, None, None])
        return (vectors @ scaled).float()

    @staticmethod
    def _best_scale(scores: np.ndarray, codes: np.ndarray, prior: np.ndarray) -> float:
        def loss(log_scale: float) -> float:
            chosen = _log_proba(scores, float(np.exp(log_scale)), prior)
            return float(-chosen[np.arange(len(codes)), codes].mean())

        return float(np.exp(minimize_scalar(loss, bounds=(-4, 5), method="bounded").x))


def _log_proba(scores: np.ndarray, scale: float, prior: np.ndarray) -> np.ndarray:
    logits = np.log(prior) + scale * scores
    largest = logits.max(1, keepdims=True)
    normal: np.ndarray = logits - largest - np.log(np.exp(logits - largest).sum(1, keepdims=True))
    return normal


def recording_groups(recording: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """One number for each name, as several draws of a recording have the same name.

    >>> recording_groups(np.array([0, 1, 2, 3]), ("walk", "run", "walk", "run")).tolist()
    [1, 0, 1, 0]
    """
    _, number = np.unique(names, return_inverse=True)
    return np.asarray(number[recording])
