"""Representations of texts, computed once by a frozen biLM and kept in a memory-mapped directory.

There are two kinds. A `pooled` store contains the mean and the maximum of every layer over the
words of a text, in float32; a `words` store contains every layer of every word, in float16. Both
contain the words themselves, to look up word vectors. A store records the digests of its model, its
texts and its files; a store that does not match is rejected.

Cost: one pass of the biLM. On disk, per text of n words, 8 x layers x dim bytes for `pooled` and
2 x n x layers x dim bytes for `words` (0.44 and 5 GB for 71,710 texts of 45 words at 3 layers of
256). In memory, the tokenized texts and one window of the embedder while writing, and a few hundred
megabytes of the map while reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, ConfigError
from bilm.files.reading import read_regular
from bilm.files.strict_json import read_json
from downstream.features.mapped_rows import MappedRows
from downstream.features.store_format import (
    DTYPES,
    LAYERS_FILE,
    OFFSETS_FILE,
    TYPES_FILE,
    WORDS_FILE,
    Kind,
    StoreKey,
    StoreRecord,
    read_record,
    remedy,
)
from downstream.features.store_size import StoreSize, check_space
from downstream.features.store_writer import StorePass, write_stores
from downstream.features.texts_to_layers import TextReading, Texts, tokenize
from downstream.settings.progress import Progress

_MAX_SMALL_FILE_BYTES = 1 << 30  # the limit for all files but the layers


class Store:
    """Representations of a list of texts, opened for reading."""

    def __init__(self, directory: Path, record: StoreRecord) -> None:
        self.directory = directory
        self.kind: Kind = record.kind
        self.num_texts = record.num_texts
        self.num_layers = record.num_layers
        self.dim = record.dim
        size = StoreSize(record.num_texts, record.num_words, record.num_layers, record.dim)
        shape = size.layers_shape(self.kind)
        self.rows = MappedRows(directory / LAYERS_FILE, DTYPES[self.kind], shape)
        self.offsets = _read_numbers(directory / OFFSETS_FILE, "<i8", self.num_texts + 1)
        self.word_ids = _read_numbers(directory / WORDS_FILE, "<i4", record.num_words)
        self.types: list[str] = read_json(
            directory / TYPES_FILE, CheckpointError, _MAX_SMALL_FILE_BYTES
        )
        self._check(record.num_words)

    def __len__(self) -> int:
        return self.num_texts

    def words_of(self, text: int) -> slice:
        """Return the range of a text's words among the words of all texts."""
        return slice(int(self.offsets[text]), int(self.offsets[text + 1]))

    def layers_of(self, places: slice) -> npt.NDArray[Any]:
        """Return the layers (words, layers, dim) of a range of words, from a `words` store."""
        return self.rows[places]

    def _check(self, num_words: int) -> None:
        """Check that offsets, word ids and types agree."""
        offsets, ids = self.offsets, self.word_ids
        are_words = isinstance(self.types, list) and all(isinstance(t, str) for t in self.types)
        if (
            not are_words
            or offsets[0] != 0
            or offsets[-1] != num_words
            or (offsets[1:] < offsets[:-1]).any()
            or (num_words and (ids.min() < 0 or ids.max() >= len(self.types)))
        ):
            raise CheckpointError(
                f"the words, offsets and types in {self.directory} do not agree; "
                f"{remedy(self.directory)}"
            )


def open_stores(
    cache: Path,
    kind: Kind,
    embedder: Embedder,
    files: Mapping[str, Texts],
    reading: TextReading = TextReading(),  # noqa: B008
    progress: bool | None = None,
) -> dict[str, Store]:
    """Open the store of each list of texts below `cache`; compute those that do not exist first.

    All texts are tokenized, and the free space is checked, before the biLM reads any text. A pass
    that computes a `words` store also writes the `pooled` one, at little extra cost.
    """
    check_cache(cache)
    keys = {name: StoreKey.of(embedder, texts, reading) for name, texts in files.items()}
    kinds: tuple[Kind, ...] = ("pooled", "words") if kind == "words" else ("pooled",)
    passes: dict[StoreKey, StorePass] = {}
    for name, key in keys.items():
        if key in passes or key.directory(cache, kind).exists():
            continue
        places = {k: key.directory(cache, k) for k in kinds}
        missing = {k: place for k, place in places.items() if not place.exists()}
        bar = Progress(f"tokenizing: {name}", progress)
        words = tokenize(embedder.pretrained, files[name], reading, bar)
        passes[key] = StorePass(missing, key, words, Progress(name, progress))
    layers = (embedder.num_layers, embedder.dim)
    sizes = [(StoreSize(len(p.texts), p.num_words, *layers), p.places) for p in passes.values()]
    check_space(cache, sizes)
    for store_pass in passes.values():
        write_stores(store_pass, embedder)
    return {
        name: Store(key.directory(cache, kind), read_record(key.directory(cache, kind), kind, key))
        for name, key in keys.items()
    }


def check_cache(cache: Path) -> None:
    """Reject a cache that is a file, or below a file."""
    existing = next(path for path in (cache, *cache.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError(f"--cache {existing} is not a directory; choose another path")


def _read_numbers(path: Path, dtype: str, length: int) -> npt.NDArray[Any]:
    """Read a file of exactly `length` numbers."""
    data = read_regular(path, CheckpointError, _MAX_SMALL_FILE_BYTES)
    if len(data) != length * np.dtype(dtype).itemsize:
        raise CheckpointError(
            f"{path} has {len(data):,} bytes; expected {length:,} numbers of {dtype}"
        )
    return np.frombuffer(data, dtype=dtype)
