"""Write a corpus: the lexicon, the shards of each split, and `corpus.json` last.

docs/corpus.md describes the format. The caller writes `vocab.txt` and the files of the tokenizer.

Cost: 4 bytes of disk per word, and one block of memory.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bilm.corpus.lexicon import BYTES_FILE, COUNTS_FILE, OFFSETS_FILE, Lexicon
from bilm.corpus.manifest import (
    ALIGNMENT_BYTES,
    FORMAT,
    ID_BYTES,
    MANIFEST_FILE,
    MAX_SHARDS,
    TAR_BLOCK_BYTES,
    VERSION,
    ShardInfo,
    SplitInfo,
    file_names,
    fingerprint_of,
    shard_name,
)
from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from bilm.files.mapping import Bytes, Ids, map_file, npy_bytes, sha256
from bilm.files.writing import write_text
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.tokenizers import TokenizerSpec

BLOCK_WORDS = 8192

_SPECIAL_BYTES = {word.encode() for word in SPECIAL_WORDS}


def write_lexicon(directory: Path, types: Iterable[bytes], counts: npt.NDArray[np.int64]) -> None:
    """Write the lexicon of `types`, which start with the special words, and their counts."""
    words = list(types)
    num_special = len(_SPECIAL_BYTES)
    if (
        not all(words)
        or set(words[:num_special]) != _SPECIAL_BYTES
        or not _SPECIAL_BYTES.isdisjoint(words[num_special:])
    ):
        _reject_types(words)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    if len(lengths) != len(counts) or len(lengths) < len(SPECIAL_WORDS):
        raise ValueError(
            f"there are {len(lengths)} types and {len(counts)} counts; their numbers must be equal "
            f"and at least {len(SPECIAL_WORDS)}"
        )
    offsets = np.zeros(len(lengths) + 1, dtype="<i8")
    np.cumsum(lengths, out=offsets[1:])
    (directory / BYTES_FILE).write_bytes(b"".join(words))
    (directory / OFFSETS_FILE).write_bytes(npy_bytes(offsets))
    (directory / COUNTS_FILE).write_bytes(npy_bytes(np.asarray(counts, dtype="<i8")))


def _reject_types(words: list[bytes]) -> None:
    """Raise ValueError for the first word that is empty or at a wrong position."""
    for word_id, word in enumerate(words):
        if not word or (word_id < len(_SPECIAL_BYTES)) != (word in _SPECIAL_BYTES):
            raise ValueError(
                f"type {word_id} is {word!r}; types must not be empty, and exactly the first "
                f"ones must be {' '.join(SPECIAL_WORDS)}, in any order"
            )


def block_ends(lengths: Ids, block_words: int, last: bool) -> Iterator[tuple[int, int]]:
    """Yield the end of each full block of sentences of `lengths`, in sentences and in words.

    With `last`, the remaining sentences are a block too.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    sentence, word, total = 0, 0, int(lengths.sum(dtype=np.int64))
    while sentence < len(ends) and (last or total - word > block_words):
        stop = int(ends.searchsorted(word + block_words, side="right"))
        sentence = max(stop, sentence + 1)
        word = int(ends[sentence - 1])
        yield sentence, word


class SplitWriter:
    """Writes the shards of one split, `<split>-00000.tar` and so on, into a directory.

    The bytes depend only on the sentences and their order, not on how they are divided into calls
    of `add`.
    """

    def __init__(
        self, directory: Path, split: str, shard_words: int, block_words: int = BLOCK_WORDS
    ) -> None:
        if shard_words < 1 or block_words < 1:
            raise CorpusError(
                f"shard_words is {shard_words} and block_words is {block_words}; both must be at "
                "least 1"
            )
        self._directory = directory
        self._split = split
        self._shard_words = shard_words
        self._block_words = block_words
        self._ids: Ids = np.empty(0, dtype="<i4")  # sentences that are not in a block yet
        self._lengths: Ids = np.empty(0, dtype="<i4")
        self._num_blocks = 0
        self._shard: ShardWriter | None = None
        self._shards: list[ShardInfo] = []

    def add(self, ids: Ids, lengths: Ids) -> None:
        """Append whole sentences: the ids of all words, and the number of words of each."""
        if ids.dtype != np.int32 or lengths.dtype != np.int32:
            raise TypeError(f"ids and lengths must be int32, not {ids.dtype} and {lengths.dtype}")
        if len(lengths) and lengths.min() < 1:
            raise ValueError("a sentence must have at least one word")
        if int(lengths.sum(dtype=np.int64)) != len(ids):
            raise ValueError(
                f"lengths sum to {lengths.sum(dtype=np.int64)}, but there are {len(ids)} ids"
            )
        if len(ids) and ids.min() < 0:
            raise ValueError(f"a sentence contains the word id {ids.min()}; it must be at least 0")
        self._ids = np.concatenate([self._ids, ids])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._write_blocks(last=False)

    def close(self) -> SplitInfo:
        """Write the remaining sentences, and return a description of the split."""
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
        if self._shard is not None:  # an error occurred: close the unfinished file
            self._shard.release()

    def _write_blocks(self, last: bool) -> None:
        """Write full blocks of at least one sentence; with `last`, also write the remainder."""
        sentence, word = 0, 0
        for stop, end in block_ends(self._lengths, self._block_words, last):
            self._write_block(self._ids[word:end], self._lengths[sentence:stop])
            sentence, word = stop, end
        self._ids, self._lengths = self._ids[word:], self._lengths[sentence:]

    def _write_block(self, ids: Ids, lengths: Ids) -> None:
        if self._shard is not None and self._shard.words + len(ids) > self._shard_words:
            self._close_shard()
        if self._shard is None:
            if len(self._shards) == MAX_SHARDS:
                raise CorpusError(
                    f"with {self._shard_words} words per shard there would be more than "
                    f"{MAX_SHARDS:,} shards; use larger shards"
                )
            self._shard = ShardWriter(self._directory / shard_name(self._split, len(self._shards)))
        self._shard.add(f"{self._num_blocks:08d}", ids, lengths)
        self._num_blocks += 1

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._shards.append(self._shard.close())
            self._shard = None


class ShardWriter:
    """Writes one tar file, and records the offsets of the arrays in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")
        self._digest = hashlib.sha256()
        self._blocks: list[list[int]] = []  # with the fields of BLOCK_DTYPE
        self._sentences = 0
        self.words = 0

    def add(self, key: str, ids: Ids, lengths: Ids) -> None:
        words_offset = self._add_member(f"{key}.words.npy", ids)
        lengths_offset = self._add_member(f"{key}.lengths.npy", lengths)
        self._blocks.append([words_offset, lengths_offset, len(lengths), len(ids)])
        self._sentences += len(lengths)
        self.words += len(ids)

    def close(self) -> ShardInfo:
        self._write(bytes(2 * TAR_BLOCK_BYTES))  # the end-of-archive marker
        size = self._file.tell()
        self._file.close()
        return ShardInfo(
            name=self._path.name,
            bytes=size,
            sha256=self._digest.hexdigest(),
            sentences=self._sentences,
            words=self.words,
            blocks=self._blocks,
        )

    def release(self) -> None:
        self._file.close()

    def _add_member(self, name: str, array: Ids) -> int:
        """Write one `.npy` file into the tar; return the offset of its data."""
        content = npy_bytes(np.ascontiguousarray(array, dtype="<i4"))
        header = tarfile.TarInfo(name)  # mtime, uid and gid 0, mode 0644: reproducible
        header.size = len(content)
        self._write(header.tobuf(tarfile.USTAR_FORMAT))
        offset = self._file.tell() + len(content) - ID_BYTES * len(array)
        assert offset % ALIGNMENT_BYTES == 0
        self._write(content)
        self._write(bytes(-len(content) % TAR_BLOCK_BYTES))
        return offset

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)


def write_manifest(
    directory: Path,
    *,
    tokenizer: TokenizerSpec,
    options: dict[str, Any],
    vocabulary_size: int,
    splits: dict[str, SplitInfo],
    counts_unknown: bool = True,
) -> None:
    """Write `corpus.json`, which completes a corpus, after all other files.

    Counts the words outside the vocabulary in the shards on disk, unless `splits` contain their
    numbers, and opens the corpus, so that no build can end with a corpus that `Corpus.open` would
    reject.
    """
    num_types = len(np.load(directory / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)) - 1
    lexicon = Lexicon(directory, num_types, lambda name: _mapped(directory / name))
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer": tokenizer.to_json(),
        "options": options,
        "files": {name: _file_info(directory / name) for name in sorted(file_names(tokenizer))},
        "vocabulary_size": vocabulary_size,
        "num_types": num_types,
        "splits": {
            name: _with_unknown(directory, split, vocabulary_size, lexicon).model_dump()
            if counts_unknown
            else split.model_dump()
            for name, split in splits.items()
        },
    }
    content["fingerprint"] = fingerprint_of(content)
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    write_text(directory / MANIFEST_FILE, text)
    Corpus.open(directory)


def _file_info(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(_mapped(path))}


def _mapped(path: Path) -> Bytes:
    return map_file(path, path.stat().st_size, CorpusError)


def _with_unknown(
    directory: Path, split: SplitInfo, vocabulary_size: int, lexicon: Lexicon
) -> SplitInfo:
    total = 0
    begin_sentence, end_sentence, unknown = lexicon.special_ids
    for shard in split.shards:
        words = map_file(directory / shard.name, shard.bytes, CorpusError).view("<i4")
        for block in shard.table:
            ids = words[block["words_offset"] // ID_BYTES :][: block["words"]]
            if ids.max() >= len(lexicon):
                raise ValueError(
                    f"{shard.name} contains the word id {ids.max()}, but there are "
                    f"{len(lexicon)} types"
                )
            if np.any((ids == begin_sentence) | (ids == end_sentence)):
                raise ValueError(
                    f"{shard.name} contains a sentence with the word id {begin_sentence} or "
                    f"{end_sentence}; boundary words are implied"
                )
            total += int(np.count_nonzero((ids >= vocabulary_size) | (ids == unknown)))
    return split.model_copy(update={"unknown_words": total})
