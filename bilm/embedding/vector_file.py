"""The HDF5 file of vectors: one dataset per line of text, with the words that it belongs to.

The datasets "0", "1", ... have the published form. The attribute `tokens` of a dataset is the words
of its line, joined by spaces. `sentence_to_index`, which AllenNLP's readers expect, is a JSON
object with the name of the dataset of each line. The attribute `bilm` of the file describes the
model, the text and the options that the vectors were made with.

Cost: the text is in memory while the file is written, for `sentence_to_index`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5a, h5d, h5p, h5s, h5t

INDEX = "sentence_to_index"

MAX_INDEX_BYTES = 1 << 30  # a larger text has no `sentence_to_index`


@dataclass(frozen=True)
class Line:
    """A line of text and its words."""

    text: str
    words: Sequence[str]

    def __len__(self) -> int:
        return len(self.words)


class VectorFileWriter:
    """Adds lines to a new HDF5 file; `finish` completes it.

    Datasets are created with the low-level functions of h5py, which are twice as fast as
    `create_dataset` and write the same file.
    """

    def __init__(self, file: h5py.File, run: dict[str, Any], compression: str | None) -> None:
        self._file = file
        self._compression = compression
        self._index: list[str] = []  # members of a JSON object
        self.index_bytes = 0  # of the text from which readers find a line
        self._num_words = self._num_lines = 0
        self._properties = h5p.create(h5p.DATASET_CREATE)
        self._properties.set_obj_track_times(False)
        self._text_dtype = h5py.string_dtype()
        self._text_in_file = h5t.py_create(self._text_dtype, logical=True)
        self._text_in_memory = h5t.py_create(self._text_dtype)
        self._one_value = h5s.create(h5s.SCALAR)
        file.attrs["bilm"] = json.dumps(run)

    def add(self, array: npt.NDArray[Any], line: Line) -> None:
        """Add the vectors of the next line."""
        name = str(self._num_lines)
        # HDF5 cannot chunk an empty array, and therefore cannot compress it.
        if self._compression and array.size:
            dataset = self._file.create_dataset(name, data=array, compression=self._compression).id
        else:
            dataset = self._create(name.encode("ascii"), array)
        tokens = h5a.create(dataset, b"tokens", self._text_in_file, self._one_value)
        tokens.write(np.array(" ".join(line.words), self._text_dtype), self._text_in_memory)
        self._num_lines += 1
        self._num_words += len(line.words)
        if self.index_bytes <= MAX_INDEX_BYTES:
            self._index.append(f'{json.dumps(line.text.strip(), ensure_ascii=False)}: "{name}"')
            self.index_bytes += len(self._index[-1].encode("utf-8"))

    def _create(self, name: bytes, array: npt.NDArray[Any]) -> h5d.DatasetID:
        kind = h5t.py_create(array.dtype, logical=True)
        space = h5s.create_simple(array.shape)
        dataset = h5d.create(self._file.id, name, kind, space, self._properties)
        dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(array), kind)
        return dataset

    def finish(self) -> None:
        """Write the index of the lines, and the counts that `describe` prints."""
        self._file.attrs["num_sentences"] = self._num_lines
        self._file.attrs["num_words"] = self._num_words
        if self.index_bytes <= MAX_INDEX_BYTES:
            index = self._file.create_dataset(INDEX, (1,), dtype=h5py.string_dtype())
            index[0] = "{" + ", ".join(self._index) + "}"


def describe(path: Path) -> str:
    """Return what a finished file contains: sentences, words, the shape of an array, bytes."""
    with h5py.File(path, "r") as file:
        run = json.loads(file.attrs["bilm"])
        shape = [str(size) for size in file["0"].shape]
        if run["pool"] == "none":
            shape[-2] = "words"
        return (
            f"{file.attrs['num_sentences']:,} sentences, {file.attrs['num_words']:,} words, arrays "
            f"({', '.join(shape)}) of {file['0'].dtype}, {path.stat().st_size:,} bytes"
        )
