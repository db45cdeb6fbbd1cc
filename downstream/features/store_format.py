"""The files of a store of representations, and the record that describes them (`store.json`)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError
from bilm.files.reading import sha256_of
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.model.precision import Precision
from bilm.pretrained.digests import model_digest
from downstream.features.texts_to_layers import TextReading, Texts
from downstream.settings.sections import LongTexts
from downstream.texts.labelled import digest_of

Kind = Literal["pooled", "words"]

DTYPES: dict[Kind, np.dtype[Any]] = {"pooled": np.dtype("<f4"), "words": np.dtype("<f2")}

RECORD_FILE = "store.json"
LAYERS_FILE = "layers.bin"
OFFSETS_FILE = "offsets.bin"
WORDS_FILE = "words.bin"
TYPES_FILE = "types.json"
FILES = (LAYERS_FILE, OFFSETS_FILE, WORDS_FILE, TYPES_FILE)


class StoreRecord(Section):
    """The content of store.json."""

    format: Literal["bilm-representations"]
    version: Literal[1]
    kind: Kind
    model: str
    texts: str
    tokenized: bool
    max_words: int
    long_texts: LongTexts = "cut"
    precision: Precision = "float32"
    num_texts: Annotated[int, Field(ge=0)]
    num_layers: Annotated[int, Field(ge=1)]
    dim: Annotated[int, Field(ge=1)]
    num_words: Annotated[int, Field(ge=0)]
    files: dict[str, str]


@dataclass(frozen=True)
class StoreKey:
    """Everything that determines the content of a store: the model, the texts, the reading."""

    model: str
    texts: str
    num_texts: int
    reading: TextReading
    precision: Precision = "float32"  # of the biLM

    @classmethod
    def of(cls, embedder: Embedder, texts: Texts, reading: TextReading) -> StoreKey:
        """Return the key of the representations of `texts`."""
        digest = model_digest(embedder.pretrained)
        return cls(digest, digest_of(texts), len(texts), reading, embedder.precision)

    def directory(self, cache: Path, kind: Kind) -> Path:
        """Return the directory of a store below `cache`."""
        text = f"{self.texts} {self.reading.tokenized} {self.reading.max_words}"
        if self.reading.long_texts != "cut":
            text += f" {self.reading.long_texts}"
        if self.precision != "float32":
            text += f" {self.precision}"
        return cache / f"{kind}-{self.model[:12]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def check(self, record: StoreRecord, directory: Path) -> None:
        """Raise CheckpointError unless the store was made from this model and these texts."""
        comparisons = {
            "with a different model": (record.model, self.model),
            "from different texts": (record.texts, self.texts),
            "with a different num_texts": (record.num_texts, self.num_texts),
            "with a different --tokenized": (record.tokenized, self.reading.tokenized),
            "with a different --max-words": (record.max_words, self.reading.max_words),
            "with a different --long-texts": (record.long_texts, self.reading.long_texts),
            "with a different --precision": (record.precision, self.precision),
        }
        for difference, (stored, expected) in comparisons.items():
            if stored != expected:
                raise CheckpointError(
                    f"the cached representations in {directory} were made {difference} "
                    f"({str(stored)[:12]}, expected {str(expected)[:12]}); {remedy(directory)}"
                )


def read_record(directory: Path, kind: Kind, key: StoreKey) -> StoreRecord:
    """Read store.json, and check it against the key and the digests of the files."""
    path = directory / RECORD_FILE
    record = parse_section(
        StoreRecord, read_json(path, CheckpointError), str(path), CheckpointError
    )
    if record.kind != kind:
        raise CheckpointError(
            f"{path}: kind is {record.kind!r}, expected {kind!r}; {remedy(directory)}"
        )
    key.check(record, directory)
    if set(record.files) != set(FILES):
        raise CheckpointError(
            f"{path} must list {', '.join(FILES)}, and nothing else; {remedy(directory)}"
        )
    for name, expected in record.files.items():
        digest = sha256_of(directory / name, CheckpointError)
        if digest != expected:
            raise CheckpointError(
                f"{directory / name} has changed since it was written (its digest is "
                f"{digest[:12]}, expected {expected[:12]}); {remedy(directory)}"
            )
    return record


def remedy(directory: Path) -> str:
    """Return the advice for a store that cannot be used."""
    return f"remove {directory} to compute it again"
