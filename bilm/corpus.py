"""A corpus on disk: its writer and its reader (docs/corpus.md describes the format).

A directory of `corpus.json`, `vocab.txt`, the lexicon of all word types, and uncompressed
webdataset tars. One sample of a tar is a block of whole sentences, as two `.npy` arrays: the ids
of its words, and the words of each sentence. The reader uses neither tarfile nor webdataset: it
maps each shard and slices it at the offsets that `corpus.json` states, so that any block is at
hand in constant time and nothing is ever extracted.

A tar notices almost no damage, so sizes and sha256 stand in `corpus.json`; `verify` checks them
all, and `block` checks a shard's before its first use.

Cost: writing, 4 bytes a word and one block of memory. Reading, the pages that are touched;
verifying, one pass over the files (measured at 0.4 GB/s on one core).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bilm.atomic import write_text
from bilm.corpus_manifest import (
    ALIGNMENT,
    FORMAT,
    LENGTHS_OFFSET,
    MANIFEST_FILE,
    MAX_SHARDS,
    SENTENCES,
    VERSION,
    VOCABULARY_FILE,
    WORDS,
    WORDS_OFFSET,
    FileInfo,
    Manifest,
    ShardInfo,
    SplitInfo,
    file_names,
    fingerprint_of,
    read_manifest,
    shard_name,
)
from bilm.errors import CorpusError
from bilm.lexicon import OFFSETS_FILE, Lexicon, write_lexicon
from bilm.mapped_file import Bytes, Stamp, map_file, npy_bytes, sha256, stamp
from bilm.tokenizers import SENTENCEPIECE_FILE, Tokenizer, load_tokenizer
from bilm.vocabulary import UNKNOWN_ID, Vocabulary

__all__ = ["Corpus", "Lexicon", "SplitInfo", "SplitWriter", "write_lexicon", "write_manifest"]

Ids = npt.NDArray[np.int32]

BEGIN_SENTENCE_ID, END_SENTENCE_ID = 0, 1
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
    return {"bytes": size, "sha256": sha256(map_file(path, size))}


def _count_unknown(directory: Path, split: SplitInfo, vocabulary_size: int, num_types: int) -> int:
    total = 0
    for shard in split.shards:
        words = map_file(directory / shard.name, shard.bytes).view("<i4")
        for offset, _, _, num_words in shard.blocks:
            ids = words[offset // 4 :][:num_words]
            if ids.max() >= num_types:
                raise ValueError(f"{shard.name} holds word id {ids.max()} of {num_types} types")
            total += int(np.count_nonzero((ids >= vocabulary_size) | (ids == UNKNOWN_ID)))
    return total


class Corpus:
    """A corpus directory, opened for reading; thread-safe."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Use `Corpus.open`, which checks `manifest` and the directory first."""
        self.path = path
        self.manifest = manifest
        self.vocabulary_size = manifest.vocabulary_size
        self._lock = threading.Lock()
        self._maps: dict[str, Bytes] = {}
        self._stamps: dict[str, Stamp | None] = {}  # of the files when they were mapped
        self._next_look = 0.0
        self._verified: set[str] = set()
        self._files: dict[str, FileInfo | ShardInfo] = dict(manifest.files)
        for split in manifest.splits.values():
            self._files |= {shard.name: shard for shard in split.shards}
        self._blocks: dict[str, npt.NDArray[np.int64]] = {}  # (blocks, 4), by split
        self._shard_of_block: dict[str, list[str]] = {}
        for name, split in manifest.splits.items():
            tables = [np.empty((0, 4), dtype=np.int64), *(shard.table for shard in split.shards)]
            self._blocks[name] = np.concatenate(tables)
            self._shard_of_block[name] = [s.name for s in split.shards for _ in s.blocks]
        self.lexicon = Lexicon(path, manifest.num_types, self._map)

    @classmethod
    def open(cls, path: Path | str) -> Corpus:
        """Open the corpus at `path`; `corpus.json` and the size of every file are checked."""
        path = Path(path)
        if not path.is_dir():
            what = "is not a directory" if path.exists() else "does not exist"
            raise CorpusError(
                f"the corpus {path} {what}; python -m data_tools.build_corpus makes one"
            )
        if not (path / MANIFEST_FILE).is_file():
            raise CorpusError(
                f"{path} holds no {MANIFEST_FILE}: it is no corpus, or its build did not finish; "
                "python -m data_tools.build_corpus makes one"
            )
        corpus = cls(path, read_manifest(path / MANIFEST_FILE))
        for name in corpus._files:
            corpus._map(name)
        corpus._refuse_strangers()
        return corpus

    @property
    def splits(self) -> dict[str, SplitInfo]:
        """The splits by name."""
        return self.manifest.splits

    @property
    def fingerprint(self) -> str:
        """The sha256 of the content of `corpus.json`: the same for the same corpus anywhere."""
        return self.manifest.fingerprint

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the softmax."""
        self.verify_file(VOCABULARY_FILE)
        vocabulary = Vocabulary.read(self.path / VOCABULARY_FILE)
        words = [word.encode("utf-8") for word in vocabulary.words]
        if len(words) != self.vocabulary_size or not self.lexicon.begins_with(words):
            raise CorpusError(
                f"{self.path / VOCABULARY_FILE} is not the head of the lexicon; "
                "build the corpus anew"
            )
        return vocabulary

    def tokenizer(self) -> Tokenizer:
        """The tokeniser that made the words from raw text."""
        if SENTENCEPIECE_FILE in self._files:
            self.verify_file(SENTENCEPIECE_FILE)
        return load_tokenizer(self.manifest.tokenizer, self.path)

    def split(self, name: str) -> SplitInfo:
        """The split of this name."""
        if name not in self.splits:
            raise CorpusError(
                f"the corpus {self.path} has no split {name!r}; it has {', '.join(self.splits)}"
            )
        return self.splits[name]

    def softmax_ids(self, ids: npt.NDArray[np.int32]) -> Ids:
        """What the softmax calls these words: those outside its vocabulary are `<UNK>`."""
        known: Ids = np.where(ids < self.vocabulary_size, ids, np.int32(UNKNOWN_ID))
        return known

    def verify(
        self, split: str | None = None, progress: Callable[[int], None] | None = None
    ) -> None:
        """Check the sha256 of every file (with `split`, all but the shards of other splits).

        `progress` is called with the number of bytes of each file as it has been checked.
        """
        shards = [] if split is None else [shard.name for shard in self.split(split).shards]
        for name in self._files if split is None else [*self.manifest.files, *shards]:
            self.verify_file(name, again=True)
            if progress is not None:
                progress(self._files[name].bytes)
        _ = self.vocabulary

    def verify_file(self, name: str, again: bool = False) -> None:
        """Check the sha256 of one file, if that has not been done before."""
        if name in self._verified and not again:
            return
        if sha256(self._map(name)) != self._files[name].sha256:
            raise CorpusError(
                f"{self.path / name} is damaged: its sha256 is not the one in {MANIFEST_FILE}; "
                "copy the file again from a good copy of the corpus, or build the corpus anew"
            )
        self._verified.add(name)

    def block_sizes(self, split: str) -> npt.NDArray[np.int64]:
        """Sentences and words of every block of a split: (blocks, 2)."""
        self.split(split)
        return self._blocks[split][:, [SENTENCES, WORDS]]

    def block_shard(self, split: str, index: int) -> str:
        """The name of the shard that holds a block."""
        return self._shard_of_block[split][index]

    def block(self, split: str, index: int, verify: bool = True) -> tuple[Ids, Ids]:
        """The word ids of a block's sentences, one after the other, and the words of each.

        With `verify` the shard's sha256 is checked before its first use. A file that is no longer
        the one that was opened is refused, unless its content is the same.
        """
        name = self.block_shard(split, index)
        for file in (name, *self.manifest.files):
            self._refuse_change(file)
        if verify:
            self.verify_file(name)
        shard = self._map(name).view("<i4")
        row = self._blocks[split][index].tolist()
        ids: Ids = shard[row[WORDS_OFFSET] // 4 :][: row[WORDS]]
        lengths: Ids = shard[row[LENGTHS_OFFSET] // 4 :][: row[SENTENCES]]
        what = None
        if ids.min() < UNKNOWN_ID or ids.max() >= self.manifest.num_types:
            what = f"word ids {ids.min()}..{ids.max()} are not all in {UNKNOWN_ID}.."
            what += f"{self.manifest.num_types - 1}"
        elif lengths.min() < 1 or int(lengths.sum(dtype=np.int64)) != len(ids):
            what = f"the lengths of its sentences do not make {len(ids)} words"
        if what is not None:
            raise CorpusError(
                f"{self.path / name}, block {index} of {split}: {what}; build the corpus anew"
            )
        return ids, lengths

    def _map(self, name: str) -> Bytes:
        with self._lock:
            if name not in self._maps:
                self._stamps[name] = stamp(self.path / name)
                self._maps[name] = map_file(self.path / name, self._files[name].bytes)
            return self._maps[name]

    def refuse_changes(self) -> None:
        """Look at all files, at most once a second and for a hundredth of the time.

        For readers that keep what they have read: what they keep is good, but the run could not be
        repeated, nor resumed.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = math.inf  # one thread looks at a time
        try:
            for name in self._files:
                self._refuse_change(name)
        finally:
            done = time.monotonic()
            self._next_look = done + max(1.0, 100 * (done - now))

    def _refuse_change(self, name: str) -> None:
        """A file that was written to or replaced since it was opened must be the same in content.

        The system's own note of the last change is compared, which costs microseconds.
        """
        self._map(name)
        if stamp(self.path / name) == self._stamps[name]:
            return
        with self._lock:
            self._maps.pop(name, None)  # another thread may have seen the change too
        try:
            self.verify_file(name, again=True)
        except CorpusError as error:
            raise CorpusError(f"the corpus has changed since it was opened: {error}") from None

    def _refuse_strangers(self) -> None:
        """A file of ours that `corpus.json` does not know: two corpora in one place."""
        listed = set(self._files) | {MANIFEST_FILE}
        for path in sorted(self.path.iterdir()):
            ours = path.suffix == ".tar" or path.name in file_names({"name": "sentencepiece"})
            if ours and path.name not in listed:
                raise CorpusError(
                    f"{path} is not listed in {MANIFEST_FILE}: it belongs to another corpus; "
                    "move it away"
                )
