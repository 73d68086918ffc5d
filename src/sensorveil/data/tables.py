"""Reading text tables that people wrote: clear refusals, byte-order marks, missing columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sensorveil.errors import Refusal

if TYPE_CHECKING:
    import pandas as pd


def read_csv(
    source: Path | IO[bytes], name: str, columns: Sequence[str] = (), **options: Any
) -> pd.DataFrame:
    """A CSV file as a table that has at least `columns`; `name` stands in refusals.

    >>> import io
    >>> marked = io.BytesIO("\\ufeffcode,weight\\n1,102\\n".encode())
    >>> list(read_csv(marked, "people.csv").columns)
    ['code', 'weight']
    """
    import pandas as pd

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
    """A Parquet file as a table that has at least `columns`."""
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
    """Refuses a table without some of its columns."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise Refusal(
            f"{name} lacks the column {', '.join(missing)};"
            f" it has {', '.join(str(column) for column in table.columns)}"
        )
    if table.empty:
        raise Refusal(f"{name} has no rows")


def numbers(table: pd.DataFrame, columns: Sequence[str], name: str) -> np.ndarray:
    """Columns as an array (columns, rows), or the refusal that shows the first wrong cell."""
    import pandas as pd

    rows = []
    for column in columns:
        with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite
            values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float32)
        wrong = np.isnan(values) & table[column].notna().to_numpy()
        if wrong.any():
            row = int(np.argmax(wrong))
            raise Refusal(
                f"{name}, row {row + 1}, {column}: '{table[column].iloc[row]}' is no number"
            )
        rows.append(values)
    return np.stack(rows)
