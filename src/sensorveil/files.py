"""Writing files and folders so that nothing half-written is ever left behind."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sensorveil.errors import Refusal

Item = TypeVar("Item")


@contextmanager
def written_folder(path: Path | str, *, replace: bool = False) -> Iterator[Path]:
    """Gives a temporary folder beside `path` that becomes `path` when the block ends well.

    A folder that exists is refused unless `replace`; after an error nothing remains.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with written_folder(Path(place) / "run") as folder:
    ...         _ = (folder / "card.md").write_text("# a run")
    ...     sorted(p.name for p in (Path(place) / "run").iterdir())
    ['card.md']
    """
    path = Path(path)
    if path.exists() and (not path.is_dir() or (not replace and any(path.iterdir()))):
        raise Refusal(f"{path} exists already; choose another place or remove it")
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=_parent(path)))
    try:
        temporary.chmod(0o755)
        yield temporary
        if path.exists():  # set aside first, so that a failure never leaves neither
            aside = temporary.with_name(f"{temporary.name}-old")
            path.rename(aside)
            temporary.rename(path)
            shutil.rmtree(aside)
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def written_file(path: Path | str) -> Iterator[Path]:
    """Gives a temporary file name beside `path` that replaces `path` when the block ends well."""
    path = Path(path)
    if path.is_dir():
        raise Refusal(f"{path} is a folder, and a file is to be written; name a file")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=path.suffix, dir=_parent(path))
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path | str, content: Any) -> None:
    """Writes JSON for people and programs: indented, in one step.

    JSON has no word for a number that is not one, so what is not finite becomes null.
    """
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    with written_file(path) as temporary:
        temporary.write_text(text + "\n", "utf-8")


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def read_json(path: Path) -> Any:
    """Reads JSON, or says which file is not JSON."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise Refusal(f"{path} is missing") from None
    except IsADirectoryError:
        raise Refusal(f"{path} is a folder, and a file was expected") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Refusal(f"{path} is not JSON: {error}") from None


def check_place(path: Path) -> None:
    """Refuses a place that cannot be written to, before the work that would be lost.

    Permissions alone do not tell (a file system may be read-only or full), so it is tried.
    """
    try:
        above = next(place for place in path.absolute().parents if place.exists())
        if not above.is_dir():
            raise Refusal(f"cannot write to {path}: {above} is a file, not a folder")
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=above):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refusal(f"cannot write to {path}: {reason}; choose another place") from None


def check_replaceable(path: Path, own: set[str], what: str) -> None:
    """Refuses to write over a folder that holds anything but what such a folder holds."""
    if not path.exists():
        return
    if not path.is_dir() or path.resolve() == Path.cwd():
        raise Refusal(f"{path} exists already and is no {what}; choose another --out")
    foreign = sorted({entry.name for entry in path.iterdir()} - own)
    if foreign:
        raise Refusal(
            f"{path} holds '{foreign[0]}', which is no part of this {what}; choose another --out"
        )


def _parent(path: Path) -> Path:
    check_place(path)
    parent = path.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    return parent


def part_of(state: Mapping[str, Item], prefix: str) -> dict[str, Item]:
    """The entries whose name starts with a prefix, without it: a part of a model file.

    >>> part_of({"reader.mean": 1, "cells": 1}, "reader.")
    {'mean': 1}
    """
    return {name[len(prefix) :]: v for name, v in state.items() if name.startswith(prefix)}
