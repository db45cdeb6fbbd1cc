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
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bilm.corpus.lexicon import Lexicon
from bilm.corpus.manifest import (
    LENGTHS_OFFSET,
    MANIFEST_FILE,
    SENTENCES,
    VOCABULARY_FILE,
    WORDS,
    WORDS_OFFSET,
    FileInfo,
    Manifest,
    ShardInfo,
    SplitInfo,
    file_names,
    read_manifest,
)
from bilm.errors import CorpusError
from bilm.files.reading import Bytes, Ids, Stamp, map_file, sha256, stamp
from bilm.text.tokenizers import SENTENCEPIECE_FILE, Tokenizer, load_tokenizer
from bilm.text.vocabulary import UNKNOWN_ID, Vocabulary


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
                self._maps[name] = map_file(self.path / name, self._files[name].bytes, CorpusError)
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
