"""Representations of texts, computed once by a frozen biLM and kept in a memory-mapped directory.

Two kinds: `pooled` keeps the mean and the maximum over a text's words of every layer, in float32
(what heads of plain pooling need); `words` keeps every layer of every word, in float16. Both keep
the words themselves, for word vectors. A store records the digests of the model and of the texts
that it was made of, and of its own files; one that does not match is refused.

Cost: one pass of the biLM. On disk, per text of n words, 8 x layers x dim bytes pooled and
2 x n x layers x dim for words (0.44 and 5 GB for 71,710 texts of 45 words at 3 layers of 256). In
memory, one window of texts while writing; while reading, some hundreds of megabytes of the map.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from tqdm import tqdm

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError
from bilm.files.reading import read_regular, sha256_of
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, write_text
from bilm.pretrained.digests import model_digest
from downstream.features.mapped_rows import MappedRows
from downstream.features.texts_to_layers import (
    Layers,
    embed_texts,
    is_hidden,
    pool,
    tokenize,
    windows_of,
)
from downstream.texts.labelled import digest_of

logger = logging.getLogger(__name__)

Kind = Literal["pooled", "words"]

_FORMAT = "bilm-representations"

_DTYPES: dict[Kind, np.dtype[Any]] = {"pooled": np.dtype("<f4"), "words": np.dtype("<f2")}

_MAX_BYTES = 1 << 30  # of any file but the layers

_FILES = ("layers.bin", "offsets.bin", "words.bin", "types.json")


class _Description(Section):
    """What store.json holds."""

    format: Literal["bilm-representations"]
    version: Literal[1]
    kind: Kind
    model: str
    texts: str
    tokenized: bool
    max_words: int
    num_texts: Annotated[int, Field(ge=0)]
    num_words: Annotated[int, Field(ge=0)]
    num_layers: Annotated[int, Field(ge=1)]
    dim: Annotated[int, Field(ge=1)]
    files: dict[str, str]


class Store:
    """Representations of a list of texts, opened for reading."""

    def __init__(self, directory: Path, description: _Description) -> None:
        self.directory = directory
        self.kind: Kind = description.kind
        self.num_texts = description.num_texts
        self.num_layers = description.num_layers
        self.dim = description.dim
        rows = self.num_texts if self.kind == "pooled" else description.num_words
        inner = (2,) if self.kind == "pooled" else ()
        self.rows = MappedRows(
            directory / "layers.bin",
            _DTYPES[self.kind],
            (rows, *inner, self.num_layers, self.dim),
        )
        self.offsets = _numbers(directory / "offsets.bin", "<i8", self.num_texts + 1)
        self.word_ids = _numbers(directory / "words.bin", "<i4", description.num_words)
        self.types: list[str] = read_json(directory / "types.json", CheckpointError, _MAX_BYTES)
        self._check(description.num_words)

    def __len__(self) -> int:
        return self.num_texts

    def _check(self, num_words: int) -> None:
        """That the words of all texts are where the offsets say."""
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
                f"the words, offsets and types in {self.directory} do not agree; remove it, and it "
                "is computed anew"
            )


def _numbers(path: Path, dtype: str, length: int) -> npt.NDArray[Any]:
    """The `length` numbers that the file at `path` must hold."""
    data = read_regular(path, CheckpointError, _MAX_BYTES)
    if len(data) != length * np.dtype(dtype).itemsize:
        raise CheckpointError(
            f"{path} has {len(data):,} bytes; {length:,} numbers of {dtype} are expected"
        )
    return np.frombuffer(data, dtype=dtype)


def open_store(
    cache: Path,
    kind: Kind,
    embedder: Embedder,
    texts: Sequence[str],
    *,
    tokenized: bool = False,
    max_words: int = 400,
    name: str = "texts",
    progress: bool | None = None,
) -> Store:
    """The store of `texts` under `cache`, computed now if it is not there.

    `progress` shows a bar: True always, None on a terminal only.
    """
    expected = {
        "kind": kind,
        "model": model_digest(embedder.pretrained),
        "texts": digest_of(texts),
        "tokenized": tokenized,
        "max_words": max_words,
        "num_texts": len(texts),
    }
    key = hashlib.sha256(f"{expected['texts']} {tokenized} {max_words}".encode()).hexdigest()
    places = {k: cache / f"{k}-{str(expected['model'])[:12]}-{key[:12]}" for k in _DTYPES}
    if not places[kind].exists():
        # Whoever computes words gets the pooled layers with them, for next to nothing.
        kinds: list[Kind] = ["pooled", "words"] if kind == "words" else ["pooled"]
        missing = {k: places[k] for k in kinds if not places[k].exists()}
        words = tokenize(embedder.pretrained, texts, tokenized, max_words, progress)
        _write(missing, embedder, words, expected, name, progress)
    return Store(places[kind], _read_description(places[kind], expected))


def _read_description(directory: Path, expected: dict[str, Any]) -> _Description:
    """What `directory` says of itself, having compared it with what is wanted and what is there."""
    remedy = f"remove {directory}, and it is computed anew"
    path = directory / "store.json"
    description = parse_section(
        _Description, read_json(path, CheckpointError), str(path), CheckpointError
    )
    for key, value in expected.items():
        found = getattr(description, key)
        if found != value:
            what = {"model": "made by another model", "texts": "made of other texts"}.get(key, key)
            raise CheckpointError(
                f"the representations in {directory} are not those wanted: {what} "
                f"({str(found)[:12]} there, {str(value)[:12]} here); {remedy}"
            )
    if set(description.files) != set(_FILES):
        raise CheckpointError(f"{path} must list {', '.join(_FILES)}, and nothing else; {remedy}")
    for name, digest in description.files.items():
        found = sha256_of(directory / name, CheckpointError)
        if found != digest:
            raise CheckpointError(
                f"{directory / name} has changed since it was written (its digest is "
                f"{found[:12]}, not {digest[:12]}); {remedy}"
            )
    return description


def _write(
    places: dict[Kind, Path],
    embedder: Embedder,
    texts: list[list[str]],
    expected: dict[str, Any],
    name: str,
    progress: bool | None,
) -> None:
    """Compute the stores of all kinds in `places` in one pass of the biLM."""
    with ExitStack() as stack:
        writers = [
            _Writer(stack.enter_context(atomic_directory(place, CheckpointError)), kind)
            for kind, place in places.items()
        ]
        for writer in writers:
            stack.callback(writer.close)
        bar = stack.enter_context(
            tqdm(
                total=sum(len(words) for words in texts),
                desc=f"biLM: {name}",
                unit=" words",
                unit_scale=True,
                disable=is_hidden(progress),
            )
        )
        for window in windows_of(texts):
            arrays = embed_texts(embedder, window)
            for writer in writers:
                writer.add(arrays)
            bar.update(sum(len(array) for array in arrays))
        shape = {"num_layers": embedder.num_layers, "dim": embedder.dim}
        for writer in writers:
            writer.finish(texts, {**expected, **shape})


class _Writer:
    """One store being written."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self._directory = directory
        self._kind: Kind = kind
        self._digest = hashlib.sha256()
        self._file = open(directory / "layers.bin", "wb")  # noqa: SIM115

    def add(self, arrays: list[Layers]) -> None:
        """Append the next texts."""
        if self._kind == "pooled":
            joined = np.stack([pool(array) for array in arrays])
        else:
            joined = np.concatenate(arrays)
        data = np.ascontiguousarray(joined.astype(_DTYPES[self._kind]))
        if not np.isfinite(data).all():
            raise CheckpointError("the model gives numbers that are not finite; is it a whole one?")
        self._digest.update(data.data)
        data.tofile(self._file)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def finish(self, texts: list[list[str]], about: dict[str, Any]) -> None:
        """Write the words, and what the store says of itself."""
        self.close()
        lengths = [len(words) for words in texts]
        types: dict[str, int] = {}
        ids = [types.setdefault(word, len(types)) for words in texts for word in words]
        small = {
            "offsets.bin": np.concatenate([[0], np.cumsum(lengths)]).astype("<i8").tobytes(),
            "words.bin": np.array(ids, dtype="<i4").tobytes(),
            "types.json": json.dumps(list(types), ensure_ascii=False).encode(),
        }
        files = {"layers.bin": self._digest.hexdigest()}
        for name, data in small.items():
            (self._directory / name).write_bytes(data)
            files[name] = hashlib.sha256(data).hexdigest()
        description = {
            **{"format": _FORMAT, "version": 1, **about, "kind": self._kind},
            "num_words": len(ids),
            "files": files,
        }
        write_text(self._directory / "store.json", json.dumps(description, indent=2) + "\n")
