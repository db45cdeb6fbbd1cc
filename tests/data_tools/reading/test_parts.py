from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from data_tools.reading import parts
from data_tools.reading.chunks import find_inputs
from data_tools.reading.options import TextOptions
from data_tools.reading.parts import Part, plan_parts
from tests.data_tools.corpus_building import make_lines, reject

TEXT = "".join(f"{line}\r\n\n" for line in make_lines(300))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 500)


def parts_of(path: Path, encoding: str | None = None) -> list[Part]:
    return plan_parts(find_inputs([str(path)], None, "--input"), encoding)


def lines_of(planned: list[Part], encoding: str | None = None) -> list[tuple[int, str]]:
    options = TextOptions(tuple(part.file for part in planned), encoding=encoding)
    return [
        line
        for part in planned
        for chunk in options.part_chunks(part.with_line_number())
        for line in zip(chunk.line_numbers, chunk.texts, strict=True)
    ]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["", "last line", "x" * 2000])
def test_parts_contain_each_line_once(tmp_path: Path, mark: str, end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"{mark}{TEXT}{end}".encode())
    planned = parts_of(path)
    assert len(planned) > 20
    assert sum(part.num_bytes for part in planned) == path.stat().st_size
    expected = [line.removesuffix("\r") for line in f"{TEXT}{end}".removesuffix("\n").split("\n")]
    assert lines_of(planned) == list(enumerate(expected, 1))


@pytest.mark.parametrize("case", ["a.txt.gz", "a.csv", "utf-16", "latin-1", "one line"])
def test_does_not_divide_other_files(tmp_path: Path, case: str) -> None:
    path = tmp_path / (case if case[:2] == "a." else "a.txt")
    data = {"utf-16": TEXT.encode("utf-16"), "one line": b"word " * 1000}.get(case, TEXT.encode())
    path.write_bytes(gzip.compress(data) if case.endswith("gz") else data)
    [part] = parts_of(path, "latin-1" if case == "latin-1" else None)
    assert part.span is None


def test_parts_grow_with_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_SPLIT_PARTS", 4)
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    assert len(parts_of(tmp_path / "a.txt")) <= 4


def test_error_names_the_line_in_a_later_part(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"some words\n" * 5000 + b"\xff\n" + b"<S>\n" * 500)
    for workers in (1, 2):
        reject(tmp_path, "a.txt", "--workers", workers, message="line 5001 is not UTF-8")
