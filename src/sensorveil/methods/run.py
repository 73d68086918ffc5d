"""Run folders: a trained obfuscator on disk, written in one step and never unpickled."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sensorveil.conditions import conditions
from sensorveil.data.windows import Origin, Scaling
from sensorveil.errors import Refusal
from sensorveil.files import read_json, write_json, written_folder
from sensorveil.methods.base import Obfuscator
from sensorveil.methods.policy import Policy
from sensorveil.methods.registry import method
from sensorveil.methods.seal_bound import NOT_COVERED
from sensorveil.version import __version__

FORMAT = 1
FILES = ("config.json", "model.safetensors", "card.md", "metrics.json")
"""What a run folder holds, and nothing else."""


def save_run(obfuscator: Obfuscator, path: Path | str) -> Path:
    """Writes a fitted obfuscator to a new folder."""
    from safetensors.numpy import save_file

    obfuscator.strength_names()  # refuses what was not fitted
    arrays = {f"method.{name}": array for name, array in obfuscator._state().items()}
    arrays |= {
        "scaling.mean": obfuscator.scaling_.mean,
        "scaling.deviation": obfuscator.scaling_.deviation,
    }
    flat = {
        name: np.ascontiguousarray(part) for n, a in arrays.items() for name, part in _real(n, a)
    }
    with written_folder(path) as folder:
        write_json(
            folder / "config.json", {**_config(obfuscator), "made": conditions(obfuscator.device)}
        )
        write_json(folder / "metrics.json", obfuscator.metrics_)
        (folder / "card.md").write_text(run_card(obfuscator), "utf-8")
        save_file(flat, folder / "model.safetensors")
    return Path(path)


def load_run(path: Path | str, device: str = "cpu") -> Obfuscator:
    """Reads a fitted obfuscator, or says what is wrong with the folder."""
    folder = Path(path)
    _check_files(folder)
    config = read_json(folder / "config.json")
    arrays = _read_arrays(folder / "model.safetensors")
    try:
        if config["format"] != FORMAT:
            raise Refusal(f"{folder} has format {config['format']}; this version reads {FORMAT}")
        made = method(config["method"])
        # A setting that came later than the run had no part in it: its default, not the preset's.
        settings = {**made.Settings().as_dict(), **config["settings"]}
        obfuscator = made(config["preset"], config["seed"], device, **settings)
        obfuscator.policy_ = Policy.of(config["keep"], config["hide"])
        obfuscator.origin_ = Origin(**config["origin"]) if config["origin"] else None
        obfuscator.shape_ = tuple(config["shape"])
        obfuscator.complex_ = bool(config["complex"])
        obfuscator.sample_rate_ = float(config["rate"])
        obfuscator.channels_ = tuple(config["channels"])
        obfuscator.classes_ = {name: tuple(values) for name, values in config["classes"].items()}
        obfuscator.scaling_ = Scaling(arrays.pop("scaling.mean"), arrays.pop("scaling.deviation"))
        obfuscator.made_ = config["made"]
        obfuscator.metrics_ = read_json(folder / "metrics.json")
        obfuscator._restore({name.removeprefix("method."): array for name, array in arrays.items()})
    except Refusal:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise Refusal(f"{folder} is not a run of sensorveil, or is damaged ({error})") from None
    return obfuscator


def run_card(obfuscator: Obfuscator) -> str:
    """A page for people: what the run is, what it was trained on, what to beware of."""
    policy, origin = obfuscator.policy_, obfuscator.origin_
    data = "windows handed over by a program"
    if origin:
        data = (
            f"{origin.dataset}, split {origin.split}, fold {origin.fold}, subset {origin.subset}"
            f" (protocol {origin.protocol})"
        )
    beware = list(obfuscator.notices())
    if obfuscator.needs_wearer():
        beware.append("Obfuscating needs the wearer's true hidden labels.")
    if obfuscator.emits_donor_windows():
        beware.append(
            "The output consists of training people's own windows: they must have agreed to that,"
            " and this folder holds those windows."
        )
    beware.append(
        "This file says nothing of attackers: `sensorveil audit` attacks the output of the run."
    )
    lines = [
        f"# {obfuscator.name}: {obfuscator.summary}",
        "",
        f"- keeps: {', '.join(policy.keep)}",
        f"- hides: {', '.join(policy.hide)}",
        f"- trained on: {data}; {obfuscator.metrics_.get('windows')} windows of shape {obfuscator.shape_}"
        f" at {obfuscator.sample_rate_:g} Hz",
        f"- preset {obfuscator.preset}, seed {obfuscator.seed}, settings {obfuscator.about()}",
        f"- strengths: {', '.join(obfuscator.strength_names()) or 'none'}",
        f"- made by sensorveil {__version__}",
        "",
        "## Beware",
        *(f"- {line}" for line in beware),
        "",
        *_promise_lines(obfuscator),
    ]
    return "\n".join(lines)


def _promise_lines(obfuscator: Obfuscator) -> list[str]:
    """Bounds and guarantee, where the method has them."""
    bounds, guarantee = obfuscator.bounds(), obfuscator.guarantee()
    lines = [bound.sentence() for bound in bounds]
    if not all(bound.vacuous for bound in bounds):
        lines.append(NOT_COVERED)
    if guarantee:
        lines.append(str(guarantee))
    return ["## Bounds and guarantees", *(f"- {line}" for line in lines), ""] if lines else []


def _config(obfuscator: Obfuscator) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": __version__,
        "method": obfuscator.name,
        **obfuscator.made_with(),
        "keep": list(obfuscator.policy_.keep),
        "hide": list(obfuscator.policy_.hide),
        "origin": asdict(obfuscator.origin_) if obfuscator.origin_ else None,
        "shape": list(obfuscator.shape_),
        "complex": obfuscator.complex_,
        "rate": obfuscator.sample_rate_,
        "channels": list(obfuscator.channels_),
        "classes": {name: list(values) for name, values in obfuscator.classes_.items()},
    }


def _check_files(folder: Path) -> None:
    if not folder.is_dir():
        raise Refusal(f"{folder} is no run folder; make one with 'sensorveil fit'")
    there = {entry.name for entry in folder.iterdir()}
    for name in FILES:
        if name not in there:
            raise Refusal(f"{folder} is not a whole run: {name} is missing")
    foreign = sorted(there - set(FILES))
    if foreign:
        raise Refusal(f"{folder} holds '{foreign[0]}', which is no part of a run; take it out")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        flat = load_file(path)
    except (SafetensorError, OSError) as error:
        raise Refusal(f"{path} is not a whole safetensors file: {error}") from None
    arrays = {name: array for name, array in flat.items() if not name.endswith((".re", ".im"))}
    for name in flat:
        if name.endswith(".re"):
            stem = name.removesuffix(".re")
            if f"{stem}.im" not in flat:
                raise Refusal(f"{path} is damaged: {stem}.im is missing")
            arrays[stem] = (flat[name] + 1j * flat[f"{stem}.im"]).astype(np.complex64)
    return arrays


def _real(name: str, array: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Complex arrays as two real ones: safetensors has no complex numbers for numpy."""
    if not np.iscomplexobj(array):
        return [(name, array)]
    return [(f"{name}.re", array.real), (f"{name}.im", array.imag)]
