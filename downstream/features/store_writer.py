"""Write stores of representations in one pass of the biLM; an interrupted pass leaves no store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, OutputError
from bilm.files.writing import atomic_directory, write_text
from downstream.features.store_format import (
    DTYPES,
    LAYERS_FILE,
    OFFSETS_FILE,
    RECORD_FILE,
    TYPES_FILE,
    WORDS_FILE,
    Kind,
    StoreKey,
    StoreRecord,
)
from downstream.features.texts_to_layers import pool_words, stream_pooled, stream_words
from downstream.settings.progress import Progress


@dataclass(frozen=True)
class StorePass:
    """A pass of the biLM over tokenized texts, and the stores that it writes."""

    places: dict[Kind, Path]
    key: StoreKey
    texts: Sequence[list[str]]
    progress: Progress

    @property
    def num_words(self) -> int:
        """The number of words of all texts."""
        return sum(len(words) for words in self.texts)


def write_stores(store_pass: StorePass, embedder: Embedder) -> None:
    """Compute all stores of a pass."""
    texts, progress = store_pass.texts, store_pass.progress
    max_words = store_pass.key.reading.max_words
    with ExitStack() as stack:
        writers = {
            kind: _Writer(stack.enter_context(atomic_directory(place, OutputError)), kind)
            for kind, place in store_pass.places.items()
        }
        for writer in writers.values():
            stack.callback(writer.close)
        shown = Progress(f"biLM: {progress.label}", progress.shown)
        bar = stack.enter_context(shown.bar("words", total=store_pass.num_words))
        if "words" in writers:
            for layers in stream_words(embedder, texts, max_words):
                writers["words"].add(layers)
                if "pooled" in writers:
                    writers["pooled"].add(pool_words(layers))
                bar.update(len(layers))
        else:
            every = stream_pooled(embedder, texts, max_words)
            for words, pooled in zip(texts, every, strict=True):
                writers["pooled"].add(pooled)
                bar.update(len(words))
        for writer in writers.values():
            writer.finish(texts, store_pass.key, embedder)


class _Writer:
    """A store that is being written."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self._directory = directory
        self._kind: Kind = kind
        self._digest = hashlib.sha256()
        self._file = open(directory / LAYERS_FILE, "wb")  # noqa: SIM115

    def add(self, layers: npt.NDArray[Any]) -> None:
        """Append the next text."""
        data = np.ascontiguousarray(layers.astype(DTYPES[self._kind]))
        if not np.isfinite(data).all():
            raise CheckpointError("the model produced NaN or infinity; its weights may be damaged")
        self._digest.update(data.data)
        self._file.write(data.data)

    def close(self) -> None:
        """Close the file of layers."""
        self._file.close()

    def finish(self, texts: Sequence[list[str]], key: StoreKey, embedder: Embedder) -> None:
        """Write the words and the record."""
        self.close()
        types: dict[str, int] = {}
        ids = [types.setdefault(word, len(types)) for words in texts for word in words]
        offsets = np.cumsum([0, *(len(words) for words in texts)])
        small_files = {
            OFFSETS_FILE: offsets.astype("<i8").tobytes(),
            WORDS_FILE: np.array(ids, dtype="<i4").tobytes(),
            TYPES_FILE: json.dumps(list(types), ensure_ascii=False).encode(),
        }
        digests = {LAYERS_FILE: self._digest.hexdigest()}
        for name, data in small_files.items():
            (self._directory / name).write_bytes(data)
            digests[name] = hashlib.sha256(data).hexdigest()
        record = StoreRecord(
            format="bilm-representations",
            version=1,
            kind=self._kind,
            model=key.model,
            texts=key.texts,
            tokenized=key.reading.tokenized,
            max_words=key.reading.max_words,
            long_texts=key.reading.long_texts,
            precision=key.precision,
            num_texts=key.num_texts,
            num_layers=embedder.num_layers,
            dim=embedder.dim,
            num_words=len(ids),
            files=digests,
        )
        write_text(self._directory / RECORD_FILE, record.model_dump_json(indent=2) + "\n")
