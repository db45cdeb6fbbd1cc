from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from bilm.text.parquet import parquet_rows, require_pyarrow

pyarrow = pytest.importorskip("pyarrow")


def write(path: Path, columns: dict[str, list[Any]], **settings: Any) -> Path:
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, **settings)
    return path


def test_reads_columns_by_name_and_number(tmp_path: Path) -> None:
    texts = [f"text {i} é" for i in range(1000)]
    columns = {"id": list(range(1000)), "text": texts, "words": [["a", "b"]] * 1000}
    path = write(tmp_path / "a.parquet", columns, row_group_size=300)
    reader = LineReader(path)
    expected = [(i + 1, [texts[i], i]) for i in range(1000)]
    assert [tuple(row) for row in parquet_rows(reader, ("text", "id"))] == expected
    assert reader.bytes_read == path.stat().st_size
    assert [tuple(row) for row in parquet_rows(reader, ("2", "1"))] == expected
    assert next(parquet_rows(reader, ("words",))).cells == [["a", "b"]]


def test_rejects_missing_columns_and_damaged_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": [1], "body": ["x"]})
    with pytest.raises(CorpusError, match=r"no column 'text'; its columns are \['id', 'body'\]"):
        list(parquet_rows(LineReader(path), ("text",)))
    data = path.read_bytes()
    for damaged in (data[:-10], data[:20], b"text\n", b"PAR1" + b"\xff" * 50 + b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"a\.parquet is not an intact Parquet file"):
            list(parquet_rows(LineReader(path), ("id",)))
    with pytest.raises(CorpusError, match="not a regular file"):
        list(parquet_rows(LineReader(tmp_path), ("id",)))


def test_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CorpusError, match=r"a\.parquet requires pyarrow; .*bilm\[parquet\]"):
        require_pyarrow(Path("a.parquet"))
