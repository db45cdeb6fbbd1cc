"""The text of the `corpus` fixture, and functions that read, verify and forge the corpus."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from bilm.corpus.manifest import fingerprint_of
from bilm.corpus.reader import Corpus
from bilm.corpus.verification import verify_corpus

SENTENCES = [
    line.split()
    for line in ("the cat sat", "a été 漢字", "x", "the " + "w" * 60, "cat the cat the cat")
]


def text_of(corpus: Corpus, split: str) -> list[list[str]]:
    sentences = []
    for index in range(len(corpus.blocks(split))):
        ids, lengths = corpus.block(split, index)
        words = [corpus.lexicon.word(i) for i in ids]
        ends = np.cumsum(lengths).tolist()
        sentences += [words[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return sentences


def forge(corpus: Corpus, name: str, data: bytes) -> Corpus:
    """Replace a file and update corpus.json accordingly, as an attacker could."""
    (corpus.path / name).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    content = json.loads((corpus.path / "corpus.json").read_text())
    files = content["files"] | {s["name"]: s for s in content["splits"]["train"]["shards"]}
    files[name] |= {"bytes": len(data), "sha256": digest}
    content["fingerprint"] = fingerprint_of(content)
    (corpus.path / "corpus.json").write_text(json.dumps(content))
    return Corpus.open(corpus.path)


def hashed_bytes(path: Path) -> int:
    """Verify a corpus as at the start of a run."""
    return verify_corpus(Corpus.open(path))


def total_bytes(corpus: Corpus) -> int:
    return sum(corpus.files.num_bytes(name) for name in corpus.files)
