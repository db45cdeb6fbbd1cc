"""Small corpora for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bilm.corpus.manifest import VOCABULARY_FILE
from bilm.corpus.reader import Corpus
from bilm.corpus.writer import SplitWriter, write_lexicon, write_manifest
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.tokenizers import TokenizerSpec

WHITESPACE = TokenizerSpec(name="whitespace")


def write_corpus(
    directory: Path,
    splits: dict[str, Sequence[Sequence[str]]],
    vocabulary: Sequence[str] | None = None,
    shard_words: int = 1_000_000,
    block_words: int = 8192,
) -> Corpus:
    """Write sentences of words as a corpus; by default the vocabulary contains all words."""
    counts = Counter(word for sentences in splits.values() for s in sentences for word in s)
    known = list(SPECIAL_WORDS) + sorted(set(counts) - set(SPECIAL_WORDS))
    known = list(vocabulary) if vocabulary is not None else known
    types = known + sorted(set(counts) - set(known), key=lambda word: (-counts[word], word))
    ids = {word: i for i, word in enumerate(types)}
    directory.mkdir(exist_ok=True)
    (directory / VOCABULARY_FILE).write_text("".join(f"{w}\n" for w in known), encoding="utf-8")
    write_lexicon(
        directory,
        (word.encode() for word in types),
        np.array([counts[word] for word in types], dtype=np.int64),
    )
    infos = {}
    for split, sentences in splits.items():
        writer = SplitWriter(directory, split, shard_words, block_words)
        writer.add(
            np.array([ids[word] for s in sentences for word in s], dtype=np.int32),
            np.array([len(s) for s in sentences], dtype=np.int32),
        )
        infos[split] = writer.close()
    write_manifest(
        directory,
        tokenizer=WHITESPACE,
        options={"seed": 0},
        vocabulary_size=len(known),
        splits=infos,
    )
    return Corpus.open(directory)
