"""Read columns of Parquet files with pyarrow.

Cost: one row group in memory.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bilm.errors import CorpusError
from bilm.files.reading import open_regular
from bilm.text.lines import LineReader
from bilm.text.tables import MissingColumnError, Row

_BATCH_ROWS = 256


def require_pyarrow(path: Path) -> None:
    """Raise CorpusError if pyarrow, which reads the Parquet file `path`, is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise CorpusError(
            f"reading {path} requires pyarrow; install it with pip install 'bilm[parquet]'"
        )


def parquet_rows(reader: LineReader, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield the values of `columns`, which are names or numbers from 1, of each row.

    `reader` names the file and counts the bytes read; its encoding does not matter.
    """
    require_pyarrow(reader.path)
    import pyarrow
    from pyarrow import parquet

    path = reader.path
    with open_regular(path, CorpusError) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            table = parquet.ParquetFile(file)
            names = [_name(column, table.schema_arrow.names, path) for column in columns]
            number, num_rows = 0, max(1, table.metadata.num_rows)
            for batch in table.iter_batches(_BATCH_ROWS, columns=names):
                rows = _values(batch, names)
                reader.bytes_read = size * min(num_rows, number + len(rows)) // num_rows
                for values in rows:
                    number += 1
                    yield Row(number, values)
        except (pyarrow.ArrowException, OSError, ValueError) as e:
            raise CorpusError(
                f"{path} is not an intact Parquet file: {e}; copy or download it again"
            ) from None


def _name(column: str, names: list[str], path: Path) -> str:
    """Return the name of a column that is given by its name or number."""
    if column not in names and column.isdecimal() and 1 <= int(column) <= len(names):
        column = names[int(column) - 1]
    if names.count(column) > 1:
        raise CorpusError(f"{path} has several columns {column!r}; rename all but one")
    if column not in names:
        raise MissingColumnError(f"{path} has no column {column!r}; its columns are {names[:20]}")
    return column


def _values(batch: Any, names: list[str]) -> list[list[Any]]:
    columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
    return [list(values) for values in zip(*columns, strict=True)]
