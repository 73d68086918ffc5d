"""A linear reader of features: softmax regression on the device that holds the work."""

from __future__ import annotations

import numpy as np
import torch


class LinearReader:
    """Softmax regression with shrinkage on standardised features.

    It minimises the mean cross-entropy plus shrinkage / 2 times the squared weights, by L-BFGS
    on all windows at once: the minimum is unique, so there is no seed.

    >>> rows = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> LinearReader().fit(rows, np.array([0, 0, 1, 1]), 2).log_probabilities(rows).argmax(1)
    array([0, 0, 1, 1])
    """

    def __init__(self, shrinkage: float = 0.01, steps: int = 100, device: str = "cpu") -> None:
        self.shrinkage, self.steps, self.device = shrinkage, steps, device

    def fit(self, features: np.ndarray, codes: np.ndarray, classes: int) -> LinearReader:
        """Learns from features (n, size) and their classes; some classes may never occur."""
        rows = self._on_device(features)
        self.mean_ = rows.mean(0)
        deviation = rows.std(0, correction=0)
        self.deviation_ = torch.where(deviation > 1e-6, deviation, 1.0)
        rows = (rows - self.mean_) / self.deviation_
        self.present_ = np.unique(codes)
        self.classes_ = classes
        labels = torch.from_numpy(np.searchsorted(self.present_, codes)).to(self.device)
        self.weight_ = rows.new_zeros(rows.shape[1], len(self.present_)).requires_grad_()
        self.bias_ = rows.new_zeros(len(self.present_)).requires_grad_()
        optimizer = torch.optim.LBFGS(
            [self.weight_, self.bias_],
            max_iter=self.steps,
            history_size=10,
            tolerance_grad=1e-4,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            scores = rows @ self.weight_ + self.bias_
            value = torch.nn.functional.cross_entropy(scores, labels)
            value = value + self.shrinkage / 2 * self.weight_.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        return self

    @torch.no_grad()
    def log_probabilities(self, features: np.ndarray) -> np.ndarray:
        """(n, classes); classes that never occurred in training are nearly impossible."""
        rows = (self._on_device(features) - self.mean_) / self.deviation_
        found = (rows @ self.weight_ + self.bias_).log_softmax(1).cpu().numpy()
        table = np.full((len(features), self.classes_), np.log(1e-9))
        table[:, self.present_] = np.maximum(found, np.log(1e-9))
        return table

    def _on_device(self, features: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(features, np.float32)).to(self.device)
