"""Write an index of occurrences window by window; an interrupted command resumes.

Each window of the text is embedded and appended to the files in `DIRECTORY.partial/`, which are
then synced; `progress.json` contains the number of finished windows and words. A resumed run cuts
off what follows the last finished window, reads the text again, and embeds only the windows that
are missing. At the end, the directory is renamed. Windows do not depend on interruptions, so
neither do the vectors.

Cost: one pass of the biLM. On disk, 2 x layers x dim bytes per word and 4 per pair of layers
(2.3 GB for a million words at 3 layers of 384). Memory: one window, 4 bytes per word, and 16 per
sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.embedding.text_windows import TextWindows
from bilm.errors import CheckpointError, CorpusError, OutputError
from bilm.files.reading import sha256_of
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import (
    exclusive_lock,
    free_bytes,
    is_disk_full,
    sync_directory,
    write_text,
)
from downstream.explorer.index_format import (
    OFFSETS_FILE,
    PRODUCT_DTYPE,
    PRODUCTS_FILE,
    RECORD_FILE,
    TYPES_FILE,
    VECTOR_DTYPE,
    WORDS_FILE,
    IndexKey,
    IndexRecord,
    bytes_per_word,
    layer_file,
    layer_pairs,
)

PROGRESS_FILE = "progress.json"
LOCK_FILE = "lock"


class WriterProgress(Section):
    """The content of progress.json."""

    model: str
    text: str
    max_words: int
    num_windows: int = 0
    num_words: int = 0


@dataclass
class _Sentences:
    """The distinct sentences of the text so far, in a compact form."""

    max_words: int
    types: dict[str, int] = field(default_factory=dict)
    ids: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q", [0]))
    seen: set[bytes] = field(default_factory=set)
    is_full: bool = False

    def add(self, words: Sequence[str]) -> bool:
        """Add a sentence; return False if it is empty or known, or if the index is full."""
        digest = hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).digest()[:16]
        if not words or digest in self.seen:
            return False
        self.is_full |= len(self.ids) + len(words) > self.max_words
        if self.is_full:
            return False
        self.seen.add(digest)
        self.ids.extend(self.types.setdefault(word, len(self.types)) for word in words)
        self.offsets.append(len(self.ids))
        return True


@dataclass(frozen=True)
class IndexText:
    """A text to index: its sentences, and how to split one into words.

    `count_words` returns the number of words up to a maximum, without tokenizing.
    """

    name: str
    texts: Callable[[], Iterator[str]]
    tokenize: Callable[[str], list[str]]
    count_words: Callable[[int], int]


def write_index(
    directory: Path,
    key: IndexKey,
    text: IndexText,
    embedder: Embedder,
    report: Callable[[int], object] = lambda num_words: None,
) -> None:
    """Write the index of `text` to `directory`, or resume an interrupted one.

    `report` is called with the number of finished words after each window.
    """
    partial = directory.with_name(directory.name + ".partial")
    _check_space(partial, key, text, embedder)
    with ExitStack() as stack:
        try:
            partial.mkdir(parents=True, exist_ok=True)
            message = f"another process is writing {directory}; wait until it has finished"
            stack.enter_context(exclusive_lock(partial / LOCK_FILE, OutputError, message))
            writer = _Writer(partial, key, embedder)
            stack.callback(writer.close)
            writer.write(text, report)
            writer.finish()
            os.replace(partial, directory)
            sync_directory(directory.parent)
        except OSError as e:
            if not is_disk_full(e):
                raise OutputError(f"cannot write {directory}: {e.strerror or e}") from None
            raise OutputError(
                f"no space left while writing {directory}; the finished part is kept in {partial}. "
                "Free some space and run the same command again, or remove the directory"
            ) from None


def _check_space(partial: Path, key: IndexKey, text: IndexText, embedder: Embedder) -> None:
    """Raise OutputError if the index does not fit on the disk; finished words are counted off.

    The number of words is an estimate: tokenizing adds some, and repeated sentences are left out.
    """
    num_words = text.count_words(key.max_words)
    needed = num_words * bytes_per_word(embedder.num_layers, embedder.dim)
    finished = sum(path.stat().st_size for path in partial.glob("*.bin"))
    free = free_bytes(partial)
    if needed - finished > free:
        raise OutputError(
            f"an index of {num_words:,} words needs about {needed - finished:,} bytes in "
            f"{partial.parent}, but {free:,} bytes are free; set --cache to a directory on a "
            "larger disk, or reduce --max-words"
        )


class _Writer:
    """An unfinished index in a locked directory."""

    def __init__(self, directory: Path, key: IndexKey, embedder: Embedder) -> None:
        self._directory = directory
        self._embedder = embedder
        self._sentences = _Sentences(key.max_words)
        self._progress = self._read_progress(key)
        self._pairs = layer_pairs(embedder.num_layers)
        widths = {layer_file(i): 2 * embedder.dim for i in range(embedder.num_layers)}
        widths[PRODUCTS_FILE] = PRODUCT_DTYPE.itemsize * len(self._pairs)
        self._files: dict[str, BinaryIO] = {}
        for name, width in widths.items():
            self._files[name] = open(directory / name, "ab")  # noqa: SIM115
            self._files[name].truncate(width * self._progress.num_words)

    def _read_progress(self, key: IndexKey) -> WriterProgress:
        path = self._directory / PROGRESS_FILE
        fresh = WriterProgress(model=key.model, text=key.text, max_words=key.max_words)
        if not path.exists():
            return fresh
        found = parse_section(WriterProgress, read_json(path, OutputError), str(path), OutputError)
        is_same = (found.model, found.text, found.max_words) == (
            key.model,
            key.text,
            key.max_words,
        )
        return found if is_same else fresh

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def write(self, text: IndexText, report: Callable[[int], object]) -> None:
        """Embed the windows of the text that are not finished."""
        limits = self._embedder.limits
        windows = TextWindows(text.texts(), text.tokenize, limits.window_words, {})
        self._embedder.pin_words(windows.first_words())
        for number, words in enumerate(self._new_sentences(windows)):
            if number >= self._progress.num_windows:
                self._append(words)
                self._record_progress(number + 1)
            report(len(self._sentences.ids))
            if self._sentences.is_full:
                break
        if not self._sentences.ids:
            raise CorpusError(f"{text.name} has no words to index; choose another text")

    def _new_sentences(self, windows: TextWindows) -> Iterator[list[Sequence[str]]]:
        for _, lines in windows.unfinished():
            yield [line.words for line in lines if self._sentences.add(line.words)]

    def _append(self, sentences: list[Sequence[str]]) -> None:
        """Embed a window and append its vectors and products."""
        for layers in self._embedder.embed(sentences):
            rounded = layers.astype(VECTOR_DTYPE)
            if not np.isfinite(rounded).all():
                raise CheckpointError(
                    "the model produced NaN or infinity; its weights may be damaged"
                )
            for i, layer in enumerate(rounded):
                self._files[layer_file(i)].write(np.ascontiguousarray(layer).data)
            self._files[PRODUCTS_FILE].write(_products(rounded, self._pairs).tobytes())

    def _record_progress(self, num_windows: int) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        changes = {"num_windows": num_windows, "num_words": len(self._sentences.ids)}
        self._progress = self._progress.model_copy(update=changes)
        path = self._directory / PROGRESS_FILE
        write_text(path, self._progress.model_dump_json(indent=2) + "\n")

    def finish(self) -> None:
        """Write the sentences and the record."""
        self.close()
        sentences, progress = self._sentences, self._progress
        types = json.dumps(list(sentences.types), ensure_ascii=True)
        small = {
            OFFSETS_FILE: np.array(sentences.offsets, "<i8").tobytes(),
            WORDS_FILE: np.array(sentences.ids, "<i4").tobytes(),
            TYPES_FILE: types.encode(),
        }
        for name, data in small.items():
            (self._directory / name).write_bytes(data)
        names = [*small, *self._files]
        record = IndexRecord(
            format="bilm-occurrences",
            version=1,
            model=progress.model,
            text=progress.text,
            max_words=progress.max_words,
            num_sentences=len(sentences.offsets) - 1,
            num_words=len(sentences.ids),
            num_layers=self._embedder.num_layers,
            dim=self._embedder.dim,
            files={name: sha256_of(self._directory / name, OutputError) for name in names},
        )
        write_text(self._directory / RECORD_FILE, record.model_dump_json(indent=2) + "\n")
        (self._directory / PROGRESS_FILE).unlink(missing_ok=True)


def _products(layers: npt.NDArray[Any], pairs: list[tuple[int, int]]) -> npt.NDArray[Any]:
    """Return the products of pairs of layers (layers, words, dim) of each word: (words, pairs)."""
    exact = layers.astype(np.float32)
    columns = [(exact[i] * exact[j]).sum(axis=1, dtype=np.float64) for i, j in pairs]
    return np.stack(columns, axis=1).astype(PRODUCT_DTYPE)
