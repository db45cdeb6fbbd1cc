from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm.embedding import vector_file
from bilm.embedding.vector_file import Line, VectorFileWriter, describe

LINES = [
    Line("The bank floods.", ["The", "bank", "floods", "."]),
    Line("", []),
    Line(' "caf\u00e9" \\ x', ['"', "caf\u00e9", '"', "\\", "x"]),
    Line("long", ["w"] * 20_000),
]


def write(path: Path, pool: str = "none") -> None:
    with h5py.File(path, "w") as file:
        writer = VectorFileWriter(file, {"pool": pool}, "gzip")
        for number, line in enumerate(LINES):
            shape = (3, len(line), 4) if pool == "none" else (3, 4)
            writer.add(np.full(shape, number, np.float32), line)
        writer.finish()


def test_stores_the_words_of_each_line(tmp_path: Path) -> None:
    write(tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, line in enumerate(LINES):
            dataset = file[str(number)]
            assert dataset.attrs["tokens"].split() == line.words
            assert dataset.shape == (3, len(line.words), 4)


def test_index_is_that_of_allennlp(tmp_path: Path) -> None:
    """Read the file as AllenNLP's readers do."""
    write(tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        index = file["sentence_to_index"]
        assert index.shape == (1,)
        assert h5py.check_string_dtype(index.dtype) is not None
        places = json.loads(index[0])
        assert places == {line.text.strip(): str(i) for i, line in enumerate(LINES)}
        assert file[places["The bank floods."]].shape == (3, 4, 4)
        assert {name for name in file if name != "sentence_to_index"} == set(places.values())


@pytest.mark.parametrize(
    ("pool", "shape"), [("none", "arrays (3, words, 4)"), ("mean", "arrays (3, 4)")]
)
def test_describes_the_file(tmp_path: Path, pool: str, shape: str) -> None:
    path = tmp_path / "out.hdf5"
    write(path, pool)
    size = f"{path.stat().st_size:,} bytes"
    assert describe(path) == f"4 sentences, 20,009 words, {shape} of float32, {size}"


def test_large_text_has_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_file, "MAX_INDEX_BYTES", 40)
    write(tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert set(file) == {"0", "1", "2", "3"}
