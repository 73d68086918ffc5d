"""Guidance: what a sampler is given in place of the plain prediction of the noise.

`classifier_free` turns towards a condition, `avoiding` away from what readers would find; one is
put around the other as in equation (20) of PrivDiffuser and equation (12) of CLOAK:

    towards = classifier_free(denoiser, condition, weight=4.0)
    guided = avoiding(towards, [(log_likelihood, 0.3)], levels)

A weight that is the number 0 switches its part off, and nothing is computed for it. Tensors of
weights are not looked at for that: this would wait for a GPU, and could not be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

from sensorveil.cuda_graphs import Inputs
from sensorveil.diffusion.schedule import Denoiser, NoiseSchedule, Predictor
from sensorveil.errors import refuse_unknown

Weight = float | torch.Tensor
"""One strength for all windows, or one for each (n,)."""

Reader = Callable[[torch.Tensor], torch.Tensor]
"""Clean windows (n, *shape) to the log-likelihood (n,), in each, of what is to be avoided."""

Gradient = Literal["clean", "full"]


def conditioned(denoiser: Denoiser, condition: torch.Tensor) -> Predictor:
    """The denoiser, told its condition and nothing more: epsilon(x_t, t, c) of equation (6)."""

    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        return denoiser(x, _everywhere(t, condition), condition)

    return predict


def classifier_free(
    denoiser: Denoiser,
    condition: torch.Tensor,
    weight: Weight,
    beside: torch.Tensor | None = None,
) -> Predictor:
    """Equation (12): (1 + w) epsilon(x_t, t, c) - w epsilon(x_t, t); CLOAK's equation (7).

    Both halves go through the network in one batch; where the weight is the number 0 there is only
    the first. The authors' code says w for what is 1 + w here. The second half is told nothing, or
    what stands `beside`: of a condition, what both are told is not amplified.

    >>> shifted = lambda x, t, condition: condition
    >>> predict = classifier_free(shifted, torch.ones(2, 3), weight=torch.tensor([0.0, 4.0]))
    >>> predict(torch.zeros(2, 3), 10)
    tensor([[1., 1., 1.],
            [5., 5., 5.]])
    """
    if _off(weight):
        return conditioned(denoiser, condition)
    told = torch.cat([condition, torch.zeros_like(condition) if beside is None else beside])

    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        towards, plain = denoiser(torch.cat([x, x]), _everywhere(t, told), told).chunk(2)
        # In this form a window of weight 0 has the conditional prediction to the last bit.
        return towards + _beside(weight, x) * (towards - plain)

    return predict


def avoiding(
    predict: Predictor,
    readers: Sequence[tuple[Reader, Weight]],
    levels: NoiseSchedule,
    gradient: Gradient = "clean",
) -> Predictor:
    """Equations (20) and (23): epsilon + sum_k w_k sqrt(1 - alpha_bar_t) grad log p_k(x̂_0).

    x̂_0 is the clean window that `predict` points to, equation (19). What the gradient is taken
    with respect to:

    - "clean", as in the authors' code: with respect to x̂_0 itself, where the reader was asked.
      Neither the network nor the factor 1 / sqrt(alpha_bar_t) of equation (19) is in it.
    - "full", as the equations are written: with respect to x_t, through equation (19) and the
      network that `predict` asks. It costs a backward pass through that network, and is larger
      where there is much noise: by 1 / sqrt(alpha_bar_t), up to 157 on the linear levels, times
      what the network makes of it.

    So one weight does not mean the same to both. For both, the factor before the gradient is
    w_k sqrt(1 - alpha_bar_t). Readers whose weight is the number 0 are not asked. It turns autograd
    on for itself under `torch.no_grad`, which samplers set; under `torch.inference_mode` that
    cannot be done.

    >>> levels = NoiseSchedule.linear()
    >>> pulled = avoiding(lambda x, t: torch.zeros_like(x), [(lambda x: x.sum(1), 0.5)], levels)
    >>> pulled(torch.ones(1, 2), 999)
    tensor([[0.5000, 0.5000]])
    """
    if gradient not in ("clean", "full"):
        raise refuse_unknown("gradient", gradient, ["clean", "full"])
    asked = [(reader, weight) for reader, weight in readers if not _off(weight)]
    if not asked:
        return predict

    def weighed(clean: torch.Tensor) -> torch.Tensor:
        # Each window's log-likelihood depends on that window alone, so the gradient of the sum
        # over windows is the gradient of each.
        return torch.stack([(weight * reader(clean)).sum() for reader, weight in asked]).sum()

    def predict_clean(x: torch.Tensor, t: int) -> torch.Tensor:
        epsilon = predict(x, t)
        with torch.enable_grad():
            clean = levels.clean_of(x, epsilon, t).detach().requires_grad_()
            (away,) = torch.autograd.grad(weighed(clean), clean)
        return epsilon + levels.at(t)[1] * away

    def predict_full(x: torch.Tensor, t: int) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            epsilon = predict(x, t)
            (away,) = torch.autograd.grad(weighed(levels.clean_of(x, epsilon, t)), x)
        return epsilon.detach() + levels.at(t)[1] * away

    return predict_clean if gradient == "clean" else predict_full


def bounded(
    predict: Predictor, low: torch.Tensor, high: torch.Tensor, levels: NoiseSchedule
) -> Predictor:
    """The noise of the clean window that is predicted, once that is cut to a range.

    Strong guidance points to windows that no sensor gives, and every step goes on from there: with
    w1 = 7.8 samples would have several times the spread of the data. The code of guided-diffusion
    cuts so too; the papers do not speak of it. `low` and `high` multiply as x does.

    >>> levels, x = NoiseSchedule.linear(), torch.zeros(1, 3)
    >>> far = lambda x, t: levels.epsilon_of(x, torch.tensor([[-9.0, 0.5, 9.0]]), t)
    >>> levels.clean_of(x, bounded(far, torch.tensor(-1.0), torch.tensor(2.0), levels)(x, 500), 500)
    tensor([[-1.0000,  0.5000,  2.0000]])
    """

    def cut(x: torch.Tensor, t: int) -> torch.Tensor:
        clean = levels.clean_of(x, predict(x, t), t)
        return levels.epsilon_of(x, clean.clamp(low, high), t)

    return cut


def within(guided: Predictor, plain: Predictor, first: int, last: int) -> Predictor:
    """One prediction at the levels from `first` to `last`, both included, another at all others.

    CLOAK leads by less of its condition at low levels. Kynkäänniemi and others (2024) guide images
    in a middle interval only: at high noise guidance loses variety, at low noise it only costs.

    >>> often = within(lambda x, t: x + 1, lambda x, t: x, first=100, last=800)
    >>> [float(often(torch.zeros(1), t)) for t in (99, 100, 800, 801)]
    [0.0, 1.0, 1.0, 0.0]
    """

    def predict(x: torch.Tensor, t: int) -> torch.Tensor:
        return guided(x, t) if first <= t <= last else plain(x, t)

    return predict


def best_of(
    tries: int,
    make: Callable[[Inputs], torch.Tensor],
    finish: Callable[[torch.Tensor], torch.Tensor],
    likeness: Callable[[torch.Tensor, torch.Tensor, Inputs], torch.Tensor],
) -> Callable[[Inputs], torch.Tensor]:
    """Of several samples for each row, finished, the one that is most like what was asked for.

    `noise` has one more axis than `make` wants, for the tries; all else is the same for each. What
    leaves is chosen by what the samples were made from and by chance alone.

    >>> nearest = best_of(3, lambda given: given["noise"], lambda made: made,
    ...     lambda made, finished, given: -made.abs())
    >>> nearest({"noise": torch.tensor([[3.0, -1.0, 2.0], [0.5, 4.0, -4.0]])})
    tensor([-1.0000,  0.5000])
    """

    def best(given: Inputs) -> torch.Tensor:
        each = {name: one.repeat_interleave(tries, 0) for name, one in given.items()}
        each["noise"] = given["noise"].flatten(0, 1)
        made = make(each)
        finished = finish(made)
        chosen = likeness(made, finished, each).view(-1, tries).argmax(1)
        rows = torch.arange(len(chosen), device=made.device)
        return finished.unflatten(0, (-1, tries))[rows, chosen]

    return best


def _everywhere(t: int, condition: torch.Tensor) -> torch.Tensor:
    return torch.full((len(condition),), t, dtype=torch.long, device=condition.device)


def _off(weight: Weight) -> bool:
    return not isinstance(weight, torch.Tensor) and weight == 0


def _beside(weight: Weight, x: torch.Tensor) -> Weight:
    """A strength in a form that multiplies x."""
    if isinstance(weight, torch.Tensor) and weight.ndim:
        return weight.to(x.dtype).view((-1,) + (1,) * (x.ndim - 1))
    return weight
