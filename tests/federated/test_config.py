"""The federation's configuration: the paper's values, refusals, and the baseline."""

from __future__ import annotations

import pytest

from sensorveil.errors import Refusal
from sensorveil.federated.config import FederationConfig


def test_defaults_are_those_of_the_paper():
    config = FederationConfig()
    assert (config.support_size, config.query_size, config.client_fraction) == (1, 15, 0.4)
    assert not config.weighted  # algorithm 1 takes the plain mean
    assert config.adaptation.model_dump() == {
        "steps": 1, "learning_rate": 1e-4, "discriminator_steps": 5, "shadow_samples": True
    }  # fmt: skip
    assert config.rounds * config.batch_size == 4 * config.balance  # once through four classes


def test_fedblinder_neither_adapts_nor_balances():
    plain = FederationConfig(epochs=7).fedblinder()
    assert (plain.adaptation.steps, plain.balance, plain.adaptation.shadow_samples) == (0, 0, False)
    assert (plain.algorithm, plain.local_steps, plain.weighted) == ("fedavg", 5, True)
    assert (plain.batch_size, plain.total_rounds) == (16, 7 * 150)
    assert (FederationConfig().kind, plain.kind) == ("Blinder", "FedBlinder")


def test_fedblinder_honours_whatever_is_given():
    own = {"local_steps": "750", "balance": 90, "learning_rate": 0.001, "query_size": 4}
    made = FederationConfig(learning_rate=0.003).fedblinder(own)
    assert (made.local_steps, made.balance, made.learning_rate) == (750, 90, 0.001)
    assert (made.support_size, made.query_size, made.algorithm) == (0, 4, "fedavg")
    with pytest.raises(Refusal, match=r"does not adapt; leave adaptation\.steps out"):
        FederationConfig().fedblinder({"adaptation.steps": 1, "support_size": 1})


def test_a_configuration_survives_its_flat_form():
    config = FederationConfig(epochs=4).with_values({"steps": 3, "quorum": 0.7})
    assert config.flat()["adaptation.steps"] == 3
    assert FederationConfig().with_values(config.flat()) == config


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"client_fraction": 1.5}, "'client_fraction' is 1.5; it should be less than or equal"),
        ({"query_size": 0}, "'query_size' is 0; it should be greater than 0"),
        ({"support_size": 0}, "'support_size' is 0; it must be above 0 where clients adapt"),
        ({"local_steps": 3}, "'local_steps' is 3; it must be 1, or set algorithm=fedavg"),
        ({"class_ratio": 0.5}, "'class_ratio' is 0.5; it must be 0, or 1 and more"),
        ({"class_ratio": 3, "balance": 0}, "'balance' is 0; it must be above 0 where there is"),
        ({"algorithm": "post"}, "'algorithm' is post; it should be 'fedsgd' or 'fedavg'"),
        ({"noise_multiplier": 1.0, "weighted": True}, "takes a plain mean"),
        ({"noise_multiplier": float("nan")}, "should be a finite number"),
        ({"quorum": 2}, "'robustness.quorum' is 2"),
        ({"ronds": 3}, "setting of a federation 'ronds' is unknown; known: .*rounds"),
    ],
)
def test_configurations_without_sense_are_refused(given, words):
    with pytest.raises(Refusal, match=words):
        FederationConfig().with_values(given)
