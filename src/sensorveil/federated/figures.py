"""What Blinder's paper states in numbers, in percent: to stand beside ours.

Yang and Ardakanian (2022), sections 7.3, 7.4, 7.6 to 7.9. Most of its figures are drawn without
numbers; those are not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_RESULTS: Mapping[tuple[str, tuple[str, ...]], Mapping[str, Mapping[str, float]]] = {
    ("motionsense", ("gender",)): {
        "Blinder": {"activity": 93.61, "gender": 57.04},
        "FedBlinder": {"activity": 83.58, "gender": 60.06},
    },
    ("mobiact", ("gender",)): {
        "Blinder": {"activity": 93.77, "gender": 54.46},
        "FedBlinder": {"activity": 90.13, "gender": 50.67},
    },
    ("mobiact", ("weight",)): {
        "Blinder": {"activity": 92.69, "weight": 42.16},
        "FedBlinder": {"activity": 90.03, "weight": 46.17},
    },
    ("mobiact", ("gender", "weight")): {
        "Blinder": {"activity": 93.64, "gender": 58.36, "weight": 55.05}
    },
}

_MOBIACT_GENDER: Mapping[str, Mapping[str, Any]] = {
    "heterogeneity": {
        "FedBlinder, ratio 1": {"activity": 92.49},
        "FedBlinder, ratio 9": {"activity": 85.86},
    },
    "unseen": {
        "taking part 0.9": {"activity": 94.84, "gender": 49.7},
        "taking part 0.5": {"activity": 89.61},
    },
    "personal": {
        "before": {"activity": 84.47, "gender": 50.61},
        "after": {"activity": 89.57},
    },
    "communication": {"batch 16": {"activity": 93.75, "gender": 53.55}},
}


def paper_figures(experiment: str, dataset: str, hide: Sequence[str]) -> Mapping[str, Any]:
    """The paper's numbers for an experiment on a dataset, or nothing.

    >>> paper_figures("results", "motionsense", ["gender"])["Blinder"]["activity"]
    93.61
    >>> paper_figures("unseen", "motionsense", ["gender"])
    {}
    """
    if experiment == "results":
        return _RESULTS.get((dataset, tuple(hide)), {})
    if (dataset, tuple(hide)) == ("mobiact", ("gender",)):
        return _MOBIACT_GENDER.get(experiment, {})
    return {}
