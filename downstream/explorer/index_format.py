"""The files of an index of occurrences, and the record that describes them (`index.json`).

An index contains every word of some distinct sentences: its vector in each layer (float16, one file
per layer), the products of the layers of each word, from which the norm of any mix follows, and the
sentences themselves. It is identified by the digests of the model and of the text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from bilm.errors import CheckpointError
from bilm.files.reading import sha256_of
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json

RECORD_FILE = "index.json"
OFFSETS_FILE = "offsets.bin"  # int64: the first word of each sentence, and the number of words
WORDS_FILE = "words.bin"  # int32: the type of each word
TYPES_FILE = "types.json"
PRODUCTS_FILE = "products.bin"  # float32 (words, pairs of layers)

VECTOR_DTYPE = np.dtype("<f2")
PRODUCT_DTYPE = np.dtype("<f4")

DEFAULT_MAX_WORDS = 1_000_000


def layer_file(layer: int) -> str:
    """Return the name of the file with the vectors of a layer."""
    return f"layer-{layer}.bin"


def layer_pairs(num_layers: int) -> list[tuple[int, int]]:
    """Return the pairs of layers whose products are stored, in their order."""
    return [(i, j) for i in range(num_layers) for j in range(i, num_layers)]


def bytes_per_word(num_layers: int, dim: int) -> int:
    """Return the size of the vectors and products of a word, and of its type."""
    products = PRODUCT_DTYPE.itemsize * len(layer_pairs(num_layers))
    return VECTOR_DTYPE.itemsize * num_layers * dim + products + 4


class IndexRecord(Section):
    """The content of index.json."""

    format: Literal["bilm-occurrences"]
    version: Literal[1]
    model: str
    text: str
    max_words: Annotated[int, Field(ge=1)]
    num_sentences: Annotated[int, Field(ge=1)]
    num_words: Annotated[int, Field(ge=1)]
    num_layers: Annotated[int, Field(ge=1)]
    dim: Annotated[int, Field(ge=1)]
    files: dict[str, str]

    @property
    def file_names(self) -> set[str]:
        """The names of the files that an index with these sizes has, besides index.json."""
        layers = {layer_file(layer) for layer in range(self.num_layers)}
        return {OFFSETS_FILE, WORDS_FILE, TYPES_FILE, PRODUCTS_FILE, *layers}


@dataclass(frozen=True)
class IndexKey:
    """Everything that determines the content of an index."""

    model: str
    text: str
    max_words: int = DEFAULT_MAX_WORDS

    def directory(self, cache: Path) -> Path:
        """Return the directory of the index below `cache`."""
        rest = hashlib.sha256(f"{self.text} {self.max_words}".encode()).hexdigest()
        return cache / f"occurrences-{self.model[:12]}-{rest[:12]}"


def read_record(directory: Path, model: str) -> IndexRecord:
    """Read index.json, and check it against the digests of the model and of the files."""
    path = directory / RECORD_FILE
    record = parse_section(
        IndexRecord, read_json(path, CheckpointError), str(path), CheckpointError
    )
    if record.model != model:
        raise CheckpointError(
            f"the index {directory} was made with another model (its digest is "
            f"{record.model[:12]}, expected {model[:12]}); make one with `bilm index`"
        )
    if set(record.files) != record.file_names:
        names = ", ".join(sorted(record.file_names))
        raise CheckpointError(f"{path} must list {names}, and nothing else; {remedy(directory)}")
    for name, expected in record.files.items():
        digest = sha256_of(directory / name, CheckpointError)
        if digest != expected:
            raise CheckpointError(
                f"{directory / name} has changed since it was written (its digest is "
                f"{digest[:12]}, expected {expected[:12]}); {remedy(directory)}"
            )
    return record


def remedy(directory: Path) -> str:
    """Return the advice for an index that cannot be used."""
    return f"remove {directory} and run `bilm index` again"
