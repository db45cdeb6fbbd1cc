from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm.embedding.background import BackgroundWriter, read_ahead
from bilm.embedding.dump import EmbeddingDump, open_dump
from bilm.embedding.vector_file import Line
from bilm.errors import OutputError

TIMEOUT_SECONDS = 60


@pytest.mark.parametrize("count", [1, 3])
def test_reads_the_next_items_while_one_is_used(count: int) -> None:
    is_read = [threading.Event() for _ in range(6)]

    def items() -> Iterator[int]:
        for number, event in enumerate(is_read):
            event.set()
            yield number

    found = []
    for number in read_ahead(items(), count):
        for event in is_read[: number + count + 1]:
            assert event.wait(TIMEOUT_SECONDS)
        assert not any(event.is_set() for event in is_read[number + count + 1 :])
        found.append(number)
    assert found == list(range(6))


def test_reading_ahead_passes_errors_on() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OutputError("the second item is invalid")

    reader = read_ahead(items(), 2)
    assert next(reader) == 1
    with pytest.raises(OutputError, match="second item"):
        next(reader)


def test_an_unused_reader_stops() -> None:
    reader = read_ahead(iter(range(100)), 2)
    assert next(reader) == 0
    before = threading.active_count()
    reader.close()
    assert threading.active_count() < before


def vectors(number: int) -> list[np.ndarray]:
    return [np.full((3, 2, 4), number, np.float32)]


def test_writes_and_joins_parts(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    with open_dump(output, {}, False) as dump:
        assert dump is not None
        with BackgroundWriter(dump, None) as writer:
            for number in range(5):
                writer.write(number, vectors(number), [Line("a b", ["a", "b"])])
                writer.join(number)
            writer.wait()
        assert dump.finished == dict.fromkeys(range(5), 1)
        dump.finish(None)
    with h5py.File(output) as file:
        for number in range(5):
            np.testing.assert_array_equal(file[str(number)], vectors(number)[0])


def test_raises_the_error_of_a_write(tmp_path: Path) -> None:
    (tmp_path / "out.hdf5.partial").write_text("a file in place of the directory")
    with BackgroundWriter(EmbeddingDump(tmp_path / "out.hdf5", {}, {}), None) as writer:
        writer.write(0, vectors(0), [Line("a b", ["a", "b"])])
        with pytest.raises(OutputError, match="cannot write"):
            writer.wait()
