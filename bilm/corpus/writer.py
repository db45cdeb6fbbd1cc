"""bilm/corpus/writer."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bilm.corpus.lexicon import _SPECIAL_BYTES, BYTES_FILE, COUNTS_FILE, OFFSETS_FILE
from bilm.corpus.manifest import (
    ALIGNMENT,
    FORMAT,
    MANIFEST_FILE,
    MAX_SHARDS,
    SENTENCES,
    VERSION,
    ShardInfo,
    SplitInfo,
    file_names,
    fingerprint_of,
    shard_name,
)
from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from bilm.files.reading import Ids, map_file, npy_bytes, sha256
from bilm.files.writing import write_text
from bilm.text.characters import (
    SPECIAL_WORDS,
)
from bilm.text.vocabulary import UNKNOWN_ID


def write_lexicon(directory: Path, types: Iterable[bytes], counts: npt.NDArray[np.int64]) -> None:
    """Write the lexicon of `types`, the special words first, with their counts."""
    lengths = []
    with open(directory / BYTES_FILE, "xb") as file:
        for word_id, word in enumerate(types):
            if not word or (word_id < len(_SPECIAL_BYTES)) != (word in _SPECIAL_BYTES):
                raise ValueError(f"type {word_id} is {word!r}; {SPECIAL_WORDS} come first, once")
            file.write(word)
            lengths.append(len(word))
    if len(lengths) != len(counts) or len(lengths) < len(SPECIAL_WORDS):
        raise ValueError(f"{len(lengths)} types and {len(counts)} counts do not make a lexicon")
    offsets = np.zeros(len(lengths) + 1, dtype="<i8")
    np.cumsum(lengths, out=offsets[1:])
    (directory / OFFSETS_FILE).write_bytes(npy_bytes(offsets))
    (directory / COUNTS_FILE).write_bytes(npy_bytes(np.asarray(counts, dtype="<i8")))


_TAR_BLOCK = 512


class SplitWriter:
    """Writes the shards of one split, `<split>-00000.tar` and on, into a directory.

    The bytes depend on the sentences and their order alone, not on how they were handed over.
    """

    def __init__(
        self, directory: Path, split: str, shard_words: int, block_words: int = 8192
    ) -> None:
        if shard_words < 1 or block_words < 1:
            raise CorpusError(
                f"shard_words {shard_words} and block_words {block_words} must both be at least 1"
            )
        self._directory = directory
        self._split = split
        self._shard_words = shard_words
        self._block_words = block_words
        self._ids: Ids = np.empty(0, dtype="<i4")  # sentences that wait for their block
        self._lengths: Ids = np.empty(0, dtype="<i4")
        self._num_blocks = 0
        self._shard: _ShardWriter | None = None
        self._shards: list[ShardInfo] = []

    def add(self, ids: Ids, lengths: Ids) -> None:
        """Append whole sentences: the ids of all their words, and the words of each."""
        if ids.dtype != np.int32 or lengths.dtype != np.int32:
            raise TypeError(f"ids and lengths must be int32, not {ids.dtype} and {lengths.dtype}")
        if len(lengths) and lengths.min() < 1:
            raise ValueError("a sentence must have at least one word")
        if int(lengths.sum(dtype=np.int64)) != len(ids):
            raise ValueError(f"lengths sum to {lengths.sum(dtype=np.int64)}, not {len(ids)} ids")
        if len(ids) and ids.min() < UNKNOWN_ID:
            raise ValueError(f"word id {ids.min()} in a sentence; its borders are implied")
        self._ids = np.concatenate([self._ids, ids])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._write_blocks(last=False)

    def close(self) -> SplitInfo:
        """Write what waits, and say what was written."""
        self._write_blocks(last=True)
        self._close_shard()
        return SplitInfo(
            sentences=sum(shard.sentences for shard in self._shards),
            words=sum(shard.words for shard in self._shards),
            unknown_words=0,
            shards=self._shards,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._shard is not None:  # left by an error: the file is not finished, only released
            self._shard.release()

    def _write_blocks(self, last: bool) -> None:
        """Cut the waiting sentences into blocks: as many as fit, and at least one."""
        ends = np.cumsum(self._lengths, dtype=np.int64)
        sentence, word = 0, 0
        while sentence < len(ends) and (last or ends[-1] - word > self._block_words):
            stop = int(np.searchsorted(ends, word + self._block_words, side="right"))
            stop = max(stop, sentence + 1)
            end = int(ends[stop - 1])
            self._write_block(self._ids[word:end], self._lengths[sentence:stop])
            sentence, word = stop, end
        self._ids, self._lengths = self._ids[word:], self._lengths[sentence:]

    def _write_block(self, ids: Ids, lengths: Ids) -> None:
        if self._shard is not None and self._shard.words + len(ids) > self._shard_words:
            self._close_shard()
        if self._shard is None:
            if len(self._shards) == MAX_SHARDS:
                raise CorpusError(
                    f"{self._shard_words} words a shard make more than {MAX_SHARDS:,} shards; "
                    "choose larger shards"
                )
            self._shard = _ShardWriter(self._directory / shard_name(self._split, len(self._shards)))
        self._shard.add(f"{self._num_blocks:08d}", ids, lengths)
        self._num_blocks += 1

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._shards.append(self._shard.close())
            self._shard = None


class _ShardWriter:
    """Writes one tar, and knows where the arrays in it begin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")
        self._digest = hashlib.sha256()
        self._blocks: list[list[int]] = []
        self.words = 0

    def add(self, key: str, ids: Ids, lengths: Ids) -> None:
        words_offset = self._add_member(f"{key}.words.npy", ids)
        lengths_offset = self._add_member(f"{key}.lengths.npy", lengths)
        self._blocks.append([words_offset, lengths_offset, len(lengths), len(ids)])
        self.words += len(ids)

    def close(self) -> ShardInfo:
        self._write(bytes(2 * _TAR_BLOCK))  # the end of a tar
        size = self._file.tell()
        self._file.close()
        return ShardInfo(
            name=self._path.name,
            bytes=size,
            sha256=self._digest.hexdigest(),
            sentences=sum(block[SENTENCES] for block in self._blocks),
            words=self.words,
            blocks=self._blocks,
        )

    def release(self) -> None:
        self._file.close()

    def _add_member(self, name: str, array: Ids) -> int:
        """Write one `.npy` file into the tar; returns where its data begin."""
        content = npy_bytes(np.ascontiguousarray(array, dtype="<i4"))
        header = tarfile.TarInfo(name)  # mtime, uid and gid 0, mode 0644: reproducible bytes
        header.size = len(content)
        self._write(header.tobuf(tarfile.USTAR_FORMAT))
        offset = self._file.tell() + len(content) - 4 * len(array)
        assert offset % ALIGNMENT == 0
        self._write(content)
        self._write(bytes(-len(content) % _TAR_BLOCK))
        return offset

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)


def write_manifest(
    directory: Path,
    *,
    tokenizer: dict[str, Any],
    options: dict[str, Any],
    vocabulary_size: int,
    splits: dict[str, SplitInfo],
) -> None:
    """Write `corpus.json`, which makes the directory a corpus: after all other files.

    Counts the words outside the vocabulary in the shards as they stand on disk, and opens what it
    has written, so that no build can end in a corpus that `Corpus.open` would refuse.
    """
    num_types = len(np.load(directory / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)) - 1
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer": tokenizer,
        "options": options,
        "files": {name: _file_info(directory / name) for name in sorted(file_names(tokenizer))},
        "vocabulary_size": vocabulary_size,
        "num_types": num_types,
        "splits": {
            name: split.model_dump()
            | {"unknown_words": _count_unknown(directory, split, vocabulary_size, num_types)}
            for name, split in splits.items()
        },
    }
    content["fingerprint"] = fingerprint_of(content)
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    write_text(directory / MANIFEST_FILE, text)
    Corpus.open(directory)


def _file_info(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"bytes": size, "sha256": sha256(map_file(path, size, CorpusError))}


def _count_unknown(directory: Path, split: SplitInfo, vocabulary_size: int, num_types: int) -> int:
    total = 0
    for shard in split.shards:
        words = map_file(directory / shard.name, shard.bytes, CorpusError).view("<i4")
        for offset, _, _, num_words in shard.blocks:
            ids = words[offset // 4 :][:num_words]
            if ids.max() >= num_types:
                raise ValueError(f"{shard.name} holds word id {ids.max()} of {num_types} types")
            total += int(np.count_nonzero((ids >= vocabulary_size) | (ids == UNKNOWN_ID)))
    return total
