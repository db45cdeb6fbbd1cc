"""`corpus.json`: what a corpus directory says of itself, and the rules that it must keep.

The file may come from anywhere, so every field has its type and its range, the sums must agree,
and blocks must lie inside their shard, aligned and apart from each other. Who holds a checked
`Manifest` can slice the shards without looking again.

Cost: about 3 microseconds and 30 bytes of JSON a block of some 8,000 words.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bilm.corpus.lexicon import LEXICON_FILES
from bilm.errors import CorpusError
from bilm.files.strict_json import read_json
from bilm.text.characters import (
    SPECIAL_WORDS,
)
from bilm.text.tokenizers import SENTENCEPIECE_FILE

MANIFEST_FILE = "corpus.json"

VOCABULARY_FILE = "vocab.txt"

FORMAT = "bilm-corpus"

VERSION = 1

ALIGNMENT = 64  # of array data in a shard: 512 bytes of tar header, 128 of npy header

MAX_SHARDS = 100_000

MAX_MANIFEST_BYTES = 1 << 26  # some two million blocks, 17 billion words

Count = Annotated[int, Field(ge=0, le=1 << 53)]

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

SplitName = Annotated[str, Field(pattern=r"^[a-z]{1,32}$")]

Block = Annotated[list[Count], Field(min_length=4, max_length=4)]

# Columns of a block, in corpus.json and in `ShardInfo.table`.
WORDS_OFFSET, LENGTHS_OFFSET, SENTENCES, WORDS = range(4)


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FileInfo(_Record):
    """Size and digest of a file."""

    bytes: Count
    sha256: Digest


class ShardInfo(_Record):
    """One tar: its size, digest and blocks `[words_offset, lengths_offset, sentences, words]`."""

    name: str
    bytes: Count
    sha256: Digest
    sentences: Count
    words: Count
    blocks: list[Block]

    @property
    def table(self) -> npt.NDArray[np.int64]:
        """The blocks as an array: (blocks, 4)."""
        return np.array(self.blocks, dtype=np.int64).reshape(-1, 4)


class SplitInfo(_Record):
    """One split, such as `train`: its sums and its shards, in order.

    `unknown_words` counts the words outside the softmax vocabulary. `write_manifest`, which knows
    the vocabulary, counts them; until then it is 0.
    """

    sentences: Count
    words: Count
    unknown_words: Count
    shards: Annotated[list[ShardInfo], Field(max_length=MAX_SHARDS)]


class Manifest(_Record):
    """The content of `corpus.json`."""

    format: Literal["bilm-corpus"]
    version: Literal[1]
    tokenizer: dict[str, Any]
    options: dict[str, Any]
    files: dict[str, FileInfo]
    vocabulary_size: Annotated[int, Field(ge=len(SPECIAL_WORDS), le=(1 << 31) - 1)]
    num_types: Annotated[int, Field(ge=len(SPECIAL_WORDS), le=(1 << 31) - 1)]
    splits: dict[SplitName, SplitInfo]
    fingerprint: Digest


def shard_name(split: str, index: int) -> str:
    """The file name of a split's shard."""
    return f"{split}-{index:05d}.tar"


def file_names(tokenizer: dict[str, Any]) -> set[str]:
    """The files that stand beside the shards."""
    model = {SENTENCEPIECE_FILE} if tokenizer.get("name") == "sentencepiece" else set()
    return {VOCABULARY_FILE, *LEXICON_FILES, *model}


def fingerprint_of(content: dict[str, Any]) -> str:
    """The sha256 of all fields but `fingerprint`, whatever their white space and order."""
    rest = {key: value for key, value in content.items() if key != "fingerprint"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Read and check the `corpus.json` at `path`."""
    content = read_json(path, CorpusError, MAX_MANIFEST_BYTES)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorpusError(f"{path} is not the manifest of a corpus: it must say format {FORMAT!r}")
    version = content.get("version")
    if type(version) is not int or version < 1:
        raise _broken(path, "version", f"{reprlib.repr(version)} is not a whole number from 1 on")
    if version > VERSION:
        raise CorpusError(
            f"{path} has version {version}; this bilm reads up to version {VERSION}: "
            "install a newer bilm, or build the corpus anew with this one"
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _broken(
            path, place, f"{first['msg']} (it is {reprlib.repr(first['input']):.80})"
        ) from None
    try:
        fingerprint = fingerprint_of(content)
    except RecursionError:
        raise CorpusError(f"{path} is nested too deeply") from None
    if manifest.fingerprint != fingerprint:
        raise _broken(path, "fingerprint", "the file was damaged or edited, it must be as written")
    _check(manifest, path)
    return manifest


def _broken(path: Path, place: str, rule: str) -> CorpusError:
    return CorpusError(f"{path}: {place}: {rule}; copy the corpus again, or build it anew")


def _check(manifest: Manifest, path: Path) -> None:
    """What the fields must keep together."""
    if manifest.vocabulary_size > manifest.num_types:
        raise _broken(
            path,
            "vocabulary_size",
            f"{manifest.vocabulary_size} is more than num_types {manifest.num_types}",
        )
    expected = file_names(manifest.tokenizer)
    if set(manifest.files) != expected:
        raise _broken(path, "files", f"{sorted(manifest.files)} must be {sorted(expected)}")
    for name, split in manifest.splits.items():
        for index, shard in enumerate(split.shards):
            place = f"splits.{name}.shards.{index}"
            if shard.name != shard_name(name, index):
                raise _broken(
                    path, place, f"name {shard.name!r} is not {shard_name(name, index)!r}"
                )
            _check_shard(shard, path, place)
        sentences = sum(shard.sentences for shard in split.shards)
        words = sum(shard.words for shard in split.shards)
        if (split.sentences, split.words) != (sentences, words) or split.unknown_words > words:
            raise _broken(
                path,
                f"splits.{name}",
                f"{split.sentences} sentences, {split.words} words, {split.unknown_words} unknown "
                f"ones do not agree with its shards, which have {sentences} and {words}",
            )


def _check_shard(shard: ShardInfo, path: Path, place: str) -> None:
    table = shard.table
    sentences, words = table[:, SENTENCES], table[:, WORDS]
    if not len(table) or np.any(sentences < 1) or np.any(words < sentences):
        raise _broken(path, place, "a shard has blocks, a block sentences, a sentence words")
    if np.any(words > shard.bytes // 4):
        raise _broken(path, place, f"a block has more words than {shard.bytes} bytes can hold")
    if (sentences.sum(), words.sum()) != (shard.sentences, shard.words):
        raise _broken(path, place, "sentences and words are not the sums of the blocks")
    starts = np.concatenate([table[:, WORDS_OFFSET], table[:, LENGTHS_OFFSET]])
    stops = starts + 4 * np.concatenate([words, sentences])
    if np.any(starts % ALIGNMENT):
        raise _broken(path, place, f"a block's offset is not a multiple of {ALIGNMENT}")
    if shard.bytes % 512 or np.any(stops > shard.bytes):
        raise _broken(path, place, f"a block reaches beyond the {shard.bytes} bytes of the tar")
    order = np.argsort(starts)
    if np.any(stops[order][:-1] > starts[order][1:]):
        raise _broken(path, place, "blocks overlap")


TRAIN = "train"

HELDOUT = "heldout"

SPLITS = (TRAIN, HELDOUT)
