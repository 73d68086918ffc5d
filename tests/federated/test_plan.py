"""Plans: the paper's values, what is refused, and the baseline."""

from __future__ import annotations

import pytest

from sensorveil.errors import Refusal
from sensorveil.federated.plan import Plan


def test_the_defaults_are_the_papers():
    plan = Plan()
    assert (plan.support, plan.query, plan.share, plan.batch) == (1, 15, 0.4, 16)
    assert not plan.weighted  # algorithm 1 takes the plain mean
    assert (plan.inner_steps, plan.inner_rate, plan.reader_steps) == (1, 1e-4, 5)
    assert plan.rounds * plan.batch == 4 * plan.balance  # once through four classes of 600


def test_fedblinder_neither_adapts_nor_balances():
    plain = Plan(epochs=7).fedblinder()
    assert (plain.inner_steps, plain.balance, plain.shadows) == (0, 0, False)
    assert (plain.sends, plain.local_steps, plain.weighted) == ("changes", 5, True)
    assert (plain.batch, plain.total) == (16, Plan(epochs=7).total)
    assert (Plan().kind, plain.kind) == ("Blinder", "FedBlinder")


def test_fedblinder_may_differ_in_all_but_the_number_of_rounds():
    own = Plan(rate=0.003).fedblinder(rate=0.001, local_steps=3)
    assert (own.rate, own.local_steps, own.sends) == (0.001, 3, "changes")
    assert Plan(rate=0.003).fedblinder().rate == 0.003
    assert Plan(epochs=4, rounds=6).fedblinder(epochs=6, rounds=4).total == 24
    with pytest.raises(Refusal, match="FedBlinder would have 30 rounds and Blinder 24"):
        Plan(epochs=4, rounds=6).fedblinder(epochs=5)
    with pytest.raises(Refusal, match="'rate' is -1; it must be above 0"):
        Plan().fedblinder(rate=-1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 1.5}, "'share' is 1.5; it must be at most 1"),
        ({"query": 0}, "'query' is 0; it must be above 0"),
        ({"support": 0}, "'support' is 0; it must be above 0 where there are inner steps"),
        ({"local_steps": 3}, "'local_steps' is 3; it must be 1 where gradients are sent"),
        ({"skew": 0.5}, "'skew' is 0.5; it must be 0, or 1 and more"),
        ({"skew": 3.0, "balance": 0}, "'balance' is 0; it must be above 0 where there is a skew"),
        ({"sends": "windows"}, "what is sent 'windows' is unknown; known: changes, gradients"),
        ({"noise": 1.0, "weighted": True}, "takes a plain mean"),
        ({"warm_up": 1.5}, "'warm_up' is 1.5; it must be at most 1"),
        ({"noise": float("nan")}, "must be a finite number"),
    ],
)
def test_plans_without_sense_are_refused(given, words):
    with pytest.raises(Refusal, match=words):
        Plan(**given)


def test_a_baseline_that_adapts_is_refused() -> None:
    with pytest.raises(Refusal, match="does not adapt; leave inner_steps out"):
        Plan().fedblinder(inner_steps=1)
