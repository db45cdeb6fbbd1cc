"""Read a corpus on disk (docs/corpus.md describes the format).

A corpus is a directory with `corpus.json`, `vocab.txt`, the lexicon of all word types, and
uncompressed webdataset tars. Each sample in a tar is a block of whole sentences, stored as two
`.npy` arrays: the ids of its words, and the number of words of each sentence. The reader uses
neither tarfile nor webdataset: it maps each shard and slices it at the offsets listed in
`corpus.json`, so that any block is read in constant time and nothing is ever extracted.

Cost: only the pages that are touched are read; `verify` reads all files once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bilm.corpus.corpus_files import CorpusFiles
from bilm.corpus.lexicon import LEXICON_FILES, Lexicon
from bilm.corpus.manifest import (
    BLOCK_DTYPE,
    ID_BYTES,
    MANIFEST_FILE,
    VOCABULARY_FILE,
    BlockTable,
    FileInfo,
    Manifest,
    ShardInfo,
    SplitInfo,
    read_manifest,
)
from bilm.errors import CorpusError
from bilm.files.mapping import Ids
from bilm.text.tokenizers import SENTENCEPIECE_FILE, Tokenizer, load_tokenizer
from bilm.text.vocabulary import Vocabulary

_FIXED_NAMES = {VOCABULARY_FILE, *LEXICON_FILES, SENTENCEPIECE_FILE}


class Corpus:
    """A corpus directory, opened for reading; thread-safe."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Use `Corpus.open`, which checks `manifest` and the directory first."""
        self.path = path
        self.manifest = manifest
        self.vocabulary_size = manifest.vocabulary_size
        infos: dict[str, FileInfo | ShardInfo] = dict(manifest.files)
        self._blocks: dict[str, BlockTable] = {}  # by split
        self._shard_of_block: dict[str, list[str]] = {}
        for name, split in manifest.splits.items():
            infos |= {shard.name: shard for shard in split.shards}
            tables = [np.empty(0, BLOCK_DTYPE), *(shard.table for shard in split.shards)]
            self._blocks[name] = np.concatenate(tables)
            self._shard_of_block[name] = [s.name for s in split.shards for _ in s.blocks]
        self.files = CorpusFiles(path, infos, manifest.fingerprint)
        self.lexicon = Lexicon(path, manifest.num_types, self.files.map)

    @classmethod
    def open(cls, path: Path | str) -> Corpus:
        """Open the corpus at `path`; `corpus.json` and the size of every file are checked."""
        path = Path(path)
        if not path.is_dir():
            problem = "is not a directory" if path.exists() else "does not exist"
            raise CorpusError(
                f"the corpus {path} {problem}; build one with python -m data_tools.build_corpus"
            )
        if not (path / MANIFEST_FILE).is_file():
            raise CorpusError(
                f"{path} has no {MANIFEST_FILE}: it is not a corpus, or its build did not finish; "
                "build one with python -m data_tools.build_corpus"
            )
        corpus = cls(path, read_manifest(path / MANIFEST_FILE))
        for name in corpus.files:
            corpus.files.map(name)
        corpus._reject_unlisted_files()
        return corpus

    @property
    def splits(self) -> dict[str, SplitInfo]:
        """The splits by name."""
        return self.manifest.splits

    @property
    def fingerprint(self) -> str:
        """The sha256 of the content of `corpus.json`, which is the same for every copy."""
        return self.manifest.fingerprint

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the softmax."""
        self.files.verify(VOCABULARY_FILE)
        vocabulary = Vocabulary.read(self.path / VOCABULARY_FILE)
        words = [word.encode("utf-8") for word in vocabulary.words]
        if len(words) != self.vocabulary_size or not self.lexicon.begins_with(words):
            raise CorpusError(
                f"{self.path / VOCABULARY_FILE} differs from the first words of the lexicon; "
                "rebuild the corpus"
            )
        return vocabulary

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that split the raw text into words."""
        if SENTENCEPIECE_FILE in self.files:
            self.files.verify(SENTENCEPIECE_FILE)
        return load_tokenizer(self.manifest.tokenizer, self.path)

    def split(self, name: str) -> SplitInfo:
        """Return the split with this name."""
        if name not in self.splits:
            raise CorpusError(
                f"the corpus {self.path} has no split {name!r}; it has {', '.join(self.splits)}"
            )
        return self.splits[name]

    def softmax_ids(self, ids: npt.NDArray[np.int32]) -> Ids:
        """Return the softmax ids of words; words outside the vocabulary become `<UNK>`."""
        unknown = np.int32(self.lexicon.special_ids.unknown)
        known: Ids = np.where(ids < self.vocabulary_size, ids, unknown)
        return known

    def verify(
        self, split: str | None = None, progress: Callable[[int], object] | None = None
    ) -> None:
        """Check the sha256 of every file; with `split`, skip the shards of other splits.

        `progress` is called with the number of bytes verified since the last call.
        `bilm.corpus.verification` skips files that have not changed since they were verified.
        """
        shards = [] if split is None else [shard.name for shard in self.split(split).shards]
        names = self.files if split is None else [*self.manifest.files, *shards]
        self.files.verify_all(names, progress=progress)
        _ = self.vocabulary

    def blocks(self, split: str) -> BlockTable:
        """Return the blocks of a split, in order: (blocks,)."""
        self.split(split)
        return self._blocks[split]

    def block_shard(self, split: str, index: int) -> str:
        """Return the name of the shard that contains a block."""
        return self._shard_of_block[split][index]

    def block(self, split: str, index: int, verify: bool = True) -> tuple[Ids, Ids]:
        """Return the word ids of a block's sentences, and the number of words of each sentence.

        With `verify` the shard's sha256 is checked before its first use. A shard that has changed
        since it was mapped is rejected, unless its content is the same.
        """
        name = self.block_shard(split, index)
        self.files.check_file_unchanged(name)
        if verify:
            self.files.verify(name)
        shard = self.files.map(name).view("<i4")
        block = self._blocks[split][index]
        ids: Ids = shard[block["words_offset"] // ID_BYTES :][: block["words"]]
        lengths: Ids = shard[block["lengths_offset"] // ID_BYTES :][: block["sentences"]]
        problem = None
        begin_sentence, end_sentence, _ = self.lexicon.special_ids
        if ids.min() < 0 or ids.max() >= self.manifest.num_types:
            allowed = f"0..{self.manifest.num_types - 1}"
            problem = f"word ids {ids.min()}..{ids.max()} are not all in {allowed}"
        elif np.any((ids == begin_sentence) | (ids == end_sentence)):
            problem = "a sentence contains a boundary word, which is implied"
        elif lengths.min() < 1 or int(lengths.sum(dtype=np.int64)) != len(ids):
            problem = f"the lengths of its sentences do not add up to {len(ids)} words"
        if problem is not None:
            raise CorpusError(
                f"{self.path / name}, block {index} of {split}: {problem}; rebuild the corpus"
            )
        return ids, lengths

    def _reject_unlisted_files(self) -> None:
        """Reject a file that is named like a corpus file but not listed in `corpus.json`."""
        for path in sorted(self.path.iterdir()):
            is_corpus_file = path.suffix == ".tar" or path.name in _FIXED_NAMES
            if is_corpus_file and path.name not in self.files:
                raise CorpusError(
                    f"{path} is not listed in {MANIFEST_FILE}: it belongs to another corpus; "
                    "move it elsewhere"
                )
