"""`corpus.json`: the description of a corpus directory, and the rules that it must satisfy.

The file is not trusted: every field has a type and a range, the sums must agree, and blocks must
lie inside their shard, aligned and without overlap. Code that has a checked `Manifest` can slice
the shards without further checks.

Cost: about 3 microseconds and 30 bytes of JSON per block of about 8,000 words.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from bilm.corpus.lexicon import LEXICON_FILES
from bilm.errors import CorpusError
from bilm.files.sections import Section
from bilm.files.strict_json import read_json
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.tokenizers import SENTENCEPIECE_FILE, TokenizerSpec

MANIFEST_FILE = "corpus.json"

VOCABULARY_FILE = "vocab.txt"

FORMAT = "bilm-corpus"

VERSION = 1

TRAIN, HELDOUT = "train", "heldout"

SPLITS = (TRAIN, HELDOUT)

# The alignment of array data in a shard, after 512 bytes of tar and 128 bytes of npy header.
ALIGNMENT_BYTES = 64

TAR_BLOCK_BYTES = 512

ID_BYTES = 4  # an int32

MAX_SHARDS = 100_000

MAX_MANIFEST_BYTES = 1 << 26  # about two million blocks, 17 billion words

Count = Annotated[int, Field(ge=0, le=1 << 53)]

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

SplitName = Annotated[str, Field(pattern=r"^[a-z]{1,32}$")]

# A block of sentences: the offsets of its two arrays in the shard, in bytes, and its counts.
_BLOCK_FIELDS = ("words_offset", "lengths_offset", "sentences", "words")

BLOCK_DTYPE = np.dtype([(name, np.int64) for name in _BLOCK_FIELDS])

Block = Annotated[list[Count], Field(min_length=len(_BLOCK_FIELDS), max_length=len(_BLOCK_FIELDS))]

BlockTable = npt.NDArray[np.void]  # (blocks,) of BLOCK_DTYPE


class FileInfo(Section):
    """The size and digest of a file."""

    bytes: Count
    sha256: Digest


class ShardInfo(Section):
    """One tar file: its size, digest and blocks, each with the fields of `BLOCK_DTYPE`."""

    name: str
    bytes: Count
    sha256: Digest
    sentences: Count
    words: Count
    blocks: list[Block]

    @property
    def table(self) -> BlockTable:
        """The blocks as an array."""
        columns = np.array(self.blocks, dtype=np.int64).reshape(-1, len(_BLOCK_FIELDS))
        return columns.view(BLOCK_DTYPE)[:, 0]


class SplitInfo(Section):
    """One split, such as `train`: its totals and its shards, in order.

    `unknown_words` counts the words outside the softmax vocabulary. It is 0 until `write_manifest`,
    which has the vocabulary, counts them.
    """

    sentences: Count
    words: Count
    unknown_words: Count
    shards: Annotated[list[ShardInfo], Field(max_length=MAX_SHARDS)]


class Manifest(Section):
    """The content of `corpus.json`."""

    format: Literal["bilm-corpus"]
    version: Literal[1]
    tokenizer: TokenizerSpec
    options: dict[str, Any]
    files: dict[str, FileInfo]
    vocabulary_size: Annotated[int, Field(ge=len(SPECIAL_WORDS), le=(1 << 31) - 1)]
    num_types: Annotated[int, Field(ge=len(SPECIAL_WORDS), le=(1 << 31) - 1)]
    splits: dict[SplitName, SplitInfo]
    fingerprint: Digest


def shard_name(split: str, index: int) -> str:
    """Return the file name of a shard."""
    return f"{split}-{index:05d}.tar"


def file_names(tokenizer: TokenizerSpec) -> set[str]:
    """Return the names of all files except `corpus.json` and the shards."""
    model = {SENTENCEPIECE_FILE} if tokenizer.name == "sentencepiece" else set()
    return {VOCABULARY_FILE, *LEXICON_FILES, *model}


def fingerprint_of(content: dict[str, Any]) -> str:
    """Return the sha256 of all fields but `fingerprint`; order and whitespace do not matter."""
    rest = {key: value for key, value in content.items() if key != "fingerprint"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Read and check the `corpus.json` at `path`."""
    content = read_json(path, CorpusError, MAX_MANIFEST_BYTES)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorpusError(f"{path} does not describe a corpus: its format must be {FORMAT!r}")
    version = content.get("version")
    if type(version) is not int or version < 1:
        raise _damaged(path, "version", f"{reprlib.repr(version)} is not a positive integer")
    if version > VERSION:
        raise CorpusError(
            f"{path} has version {version}; this bilm reads versions up to {VERSION}. "
            "Install a newer bilm, or rebuild the corpus with this version"
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = f"{first['msg']} (it is {reprlib.repr(first['input']):.80})"
        raise _damaged(path, place, problem) from None
    try:
        fingerprint = fingerprint_of(content)
    except RecursionError:
        raise CorpusError(f"{path} is nested too deeply") from None
    if manifest.fingerprint != fingerprint:
        raise _damaged(path, "fingerprint", "the file was damaged or edited after it was written")
    _check(manifest, path)
    return manifest


def _damaged(path: Path, place: str, problem: str) -> CorpusError:
    return CorpusError(f"{path}: {place}: {problem}; copy the corpus again, or rebuild it")


def _check(manifest: Manifest, path: Path) -> None:
    """Check the rules that involve several fields."""
    if manifest.vocabulary_size > manifest.num_types:
        raise _damaged(
            path,
            "vocabulary_size",
            f"{manifest.vocabulary_size} is more than num_types {manifest.num_types}",
        )
    expected = file_names(manifest.tokenizer)
    if set(manifest.files) != expected:
        raise _damaged(path, "files", f"{sorted(manifest.files)} must be {sorted(expected)}")
    for name, split in manifest.splits.items():
        for index, shard in enumerate(split.shards):
            place = f"splits.{name}.shards.{index}"
            if shard.name != shard_name(name, index):
                raise _damaged(
                    path, place, f"name {shard.name!r} is not {shard_name(name, index)!r}"
                )
            _check_shard(shard, path, place)
        sentences = sum(shard.sentences for shard in split.shards)
        words = sum(shard.words for shard in split.shards)
        if (split.sentences, split.words) != (sentences, words) or split.unknown_words > words:
            raise _damaged(
                path,
                f"splits.{name}",
                f"{split.sentences} sentences, {split.words} words and {split.unknown_words} "
                f"unknown words contradict its shards, which have {sentences} sentences and "
                f"{words} words",
            )


def _check_shard(shard: ShardInfo, path: Path, place: str) -> None:
    table = shard.table
    sentences, words = table["sentences"], table["words"]
    if not len(table) or np.any(sentences < 1) or np.any(words < sentences):
        raise _damaged(path, place, "a shard, a block or a sentence is empty")
    if np.any(words > shard.bytes // ID_BYTES):
        raise _damaged(path, place, f"a block has more words than fit into {shard.bytes} bytes")
    if (sentences.sum(), words.sum()) != (shard.sentences, shard.words):
        raise _damaged(path, place, "sentences and words are not the sums over the blocks")
    starts = np.concatenate([table["words_offset"], table["lengths_offset"]])
    stops = starts + ID_BYTES * np.concatenate([words, sentences])
    if np.any(starts % ALIGNMENT_BYTES):
        raise _damaged(path, place, f"a block's offset is not a multiple of {ALIGNMENT_BYTES}")
    if shard.bytes % TAR_BLOCK_BYTES or np.any(stops > shard.bytes):
        raise _damaged(path, place, f"a block extends past the {shard.bytes} bytes of the tar")
    order = np.argsort(starts)
    if np.any(stops[order][:-1] > starts[order][1:]):
        raise _damaged(path, place, "blocks overlap")
