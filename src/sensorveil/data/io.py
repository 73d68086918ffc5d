"""Reading files that people wrote: TOML, CSV, Parquet, zip and npz, each with clear refusals."""

from __future__ import annotations

import re
import tomllib
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from sensorveil.errors import Refusal, refuse_unknown

if TYPE_CHECKING:
    import pandas as pd

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "string": "text",
    "int": "a number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "tuple": "a list",
    "dict": "a section",
    "model": "a section",
}
"""What an entry must be, by the first word of pydantic's error type."""


class Section(BaseModel):
    """A section of a TOML file: an entry that is not a field is refused with the known ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_entries(cls, content: Any) -> Any:
        if isinstance(content, dict):
            for name in content:
                if name not in cls.model_fields:
                    raise refuse_unknown("entry", name, list(cls.model_fields))
        return content


def validated(model: type[Model], content: Mapping[str, Any], where: str) -> Model:
    """The content of a file as a pydantic model, or the refusal of its first wrong entry.

    Parameters
    ----------
    model : type
        The pydantic model.
    content : mapping
        What the file says.
    where : str
        The name of the file, for the refusal.

    Examples
    --------
    >>> class Window(Section):
    ...     length: int
    >>> validated(Window, {"lenght": 3}, "mine.toml")
    Traceback (most recent call last):
    sensorveil.errors.Refusal: mine.toml: entry 'lenght' is unknown; known: length
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise Refusal(_explained(error.errors()[0], where)) from None


def _explained(error: Any, where: str) -> str:
    """One line out of pydantic's account of one error."""
    *sections, last = (str(part) for part in error["loc"] or ("",))
    kind = error["type"]
    if kind == "value_error":  # a Refusal of ours
        place = ".".join([*sections, last])
        return f"{where}{', ' if place else ''}{place}: {error['ctx']['error']}"
    section = f"{where}, {'.'.join(sections)}" if sections else where
    if kind == "missing":
        return f"{section}: the entry '{last}' is missing"
    if kind == "literal_error":
        known = re.findall(r"'(\w+)'", error["ctx"]["expected"])
        return f"{section}: {refuse_unknown(last, str(error['input']), known)}"
    expected = _EXPECTED.get(kind.split("_")[0])
    if expected is None:
        return f"{section}: '{last}' is {error['input']!r}: {error['msg']}"
    return f"{section}: '{last}' must be {expected}, not {error['input']!r}"


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, with or without a byte-order mark."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise Refusal(f"{path} is missing") from None
    except IsADirectoryError:
        raise Refusal(f"{path} is a folder, and a TOML file was expected") from None
    except UnicodeDecodeError:
        raise Refusal(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"{path} is not TOML: {error}") from None


def read_csv(
    source: Path | IO[bytes], columns: Sequence[str] = (), name: str = "", **options: Any
) -> pd.DataFrame:
    """A CSV file as a table with at least the given columns.

    Parameters
    ----------
    source : path or binary stream
        The file; UTF-8, with or without a byte-order mark.
    columns : sequence of str
        Columns that must be there.
    name : str
        The name of the file in refusals; default: its path.
    **options
        Further options of `pandas.read_csv`.

    Examples
    --------
    >>> import io
    >>> marked = io.BytesIO("\\ufeffcode,weight\\n1,102\\n".encode())
    >>> list(read_csv(marked, name="people.csv").columns)
    ['code', 'weight']
    """
    import pandas as pd

    name = name or str(source)
    try:
        with warnings.catch_warnings():
            # Without index_col=False a row with too many cells shifts all columns in silence.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(source, **{"encoding": "utf-8-sig", "index_col": False, **options})
    except UnicodeDecodeError:
        raise Refusal(f"{name} is not UTF-8 text; save it as UTF-8") from None
    except pd.errors.EmptyDataError:
        raise Refusal(f"{name} is empty") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise Refusal(f"{name} is not a whole table: {error}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise Refusal(f"{name} is missing") from None
    except IsADirectoryError:
        raise Refusal(f"{name} is a folder, and a table was expected") from None
    require_columns(table, columns, name)
    return table


def read_parquet(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """A Parquet file as a table with at least the given columns."""
    import pandas as pd
    import pyarrow

    try:
        table = pd.read_parquet(path)
    except (FileNotFoundError, NotADirectoryError):
        raise Refusal(f"{path} is missing") from None
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise Refusal(f"{path} is not a whole Parquet file: {error}") from None
    require_columns(table, columns, str(path))
    return table


def require_columns(table: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    """Refuses a table without some of its columns, or without any row."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise Refusal(
            f"{name} lacks the column {', '.join(missing)};"
            f" it has {', '.join(str(column) for column in table.columns)}"
        )
    if table.empty:
        raise Refusal(f"{name} has no rows")


def numbers(
    table: pd.DataFrame,
    columns: Sequence[str],
    name: str,
    dtype: Any = np.float32,
    *,
    full: bool = False,
) -> np.ndarray:
    """Columns as an array (columns, rows); an empty cell is NaN, a word is refused.

    Parameters
    ----------
    table : DataFrame
        The table.
    columns : sequence of str
        The columns to take.
    name : str
        The name of the table in refusals.
    dtype : dtype, default float32
        The type of the numbers.
    full : bool, default False
        Whether empty cells and infinite numbers are refused, too.
    """
    import pandas as pd

    cells = table[list(columns)]
    for column in cells.select_dtypes(exclude="number"):
        found = pd.to_numeric(cells[column], errors="coerce")
        wrong = (found.isna() & cells[column].notna()).to_numpy()
        if wrong.any():
            row = int(np.argmax(wrong))
            raise Refusal(
                f"{name}, row {row + 1}, {column}: '{cells[column].iloc[row]}' is no number"
            )
        cells = cells.assign(**{column: found})
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite
        values = np.ascontiguousarray(cells.to_numpy(dtype=dtype).T)
    if full and not np.isfinite(values).all():
        at, row = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        what = "is empty" if np.isnan(values[at, row]) else "is infinite"
        raise Refusal(
            f"{name}, row {row + 1}: {columns[at]} {what}; fill the cell, or leave its recording out"
        )
    return values


def read_people(
    path: Path, key: str, columns: Sequence[str], measured: Sequence[str] = ()
) -> dict[Any, dict[str, Any]]:
    """A table of people: for each person, by the column `key`, a dictionary of the columns.

    Parameters
    ----------
    path : Path
        The CSV file.
    key : str
        The column that names the person; each person has one row.
    columns : sequence of str
        The columns to take.
    measured : sequence of str
        Those of them that must hold numbers.
    """
    table = read_csv(path, [key, *columns])
    for name in measured:
        values = numbers(table, [name], str(path), np.float64)[0]
        table[name] = table[name] if name == key else values
    twice = table[key][table[key].duplicated()]
    if len(twice):
        raise Refusal(f"{path}: person {twice.iloc[0]} appears twice")
    people: dict[Any, dict[str, Any]] = table.set_index(key)[list(columns)].to_dict("index")
    return people


def person_in(people: Mapping[Any, Mapping[str, Any]], person: Any, where: str) -> dict[str, Any]:
    """The row of a person, or the refusal that says which file names somebody unknown."""
    if person not in people:
        raise Refusal(f"{where}: person {person} is not in the table of people")
    return dict(people[person])


def read_index(path: Path, columns: Sequence[str], total: int, of: Path) -> Iterator[Any]:
    """The rows of a table of recordings whose `start` and `n` divide `total` samples.

    Parameters
    ----------
    path : Path
        The CSV file, one row a recording.
    columns : sequence of str
        Its columns beside `start` and `n`.
    total : int
        How many samples there are.
    of : Path
        The file that holds the samples, for the refusal.
    """
    index = read_csv(path, [*columns, "n", "start"])
    ends = index["start"] + index["n"]
    if int(index["n"].sum()) != total or int(ends.max()) > total:
        raise Refusal(f"{of} has {total} rows, {path.name} says {index['n'].sum()}")
    yield from index.itertuples()


def zip_members(archive: Path, pattern: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of a zip whose name holds the pattern, by name."""
    try:
        with zipfile.ZipFile(archive) as content:
            for name in sorted(content.namelist()):
                if pattern.search(name):
                    yield name, content.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise Refusal(f"{archive} is not a whole zip file ({error}); download it again") from None


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays of an npz file by name; nothing in it is unpickled."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in names}
    except KeyError as error:
        raise Refusal(f"{path} lacks an array: {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, TypeError) as error:
        raise Refusal(f"{path} is not a whole npz file ({error}); copy it again") from None
