"""Inputs in several formats, and the digests of the corpora that version 0.1.0 built from them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from pathlib import Path

from data_tools import build_corpus
from tests.data_tools.corpus_building import make_lines
from tests.data_tools.corpus_reading import digests

# Words per bucket of the shuffle, so that small inputs have several buckets.
BUCKET_WORDS = 5000

# Types per range of the merge, so that the types have several ranges.
RANGE_TYPES = 100

DOCUMENTS = ["--lines", "documents", "--shard-words", "9000", "--min-count", "2"]

# The flags of each build, and the sha256 of the digests of its files.
BUILDS: dict[str, tuple[list[str], str]] = {
    "moses": (
        ["--heldout", "0.1", *DOCUMENTS],
        "cb8d39d6b97914a18197c54cdf4a6582b7f9cd3b475696ad64e6f4990d038f57",
    ),
    "documents": (
        ["--tokenizer", "whitespace", "--shuffle", "documents", *DOCUMENTS],
        "ec69fc04096808348f454afe164e4d5f34b9753001244483c7e4e26a4a8e4501",
    ),
    "in order": (
        ["--tokenizer", "whitespace", "--shuffle", "none", "--lowercase"],
        "bb073b7234436c2f96f182a9ebb5546b1e012efaf696755da58c4aac823bc8ef",
    ),
    "held-out files": (
        ["--heldout", "*.jsonl", "--seed", "7", "--max-vocab", "50"],
        "57ea6a8cb486ed89b05803b28a4c4c890d9a28d5057a68dc26679a03e5bd8b69",
    ),
}


def write_inputs(directory: Path) -> None:
    """Write the same sentences, in another order, as text, compressed text, CSV and JSON Lines."""
    directory.mkdir()
    texts = [
        [
            f"{a}, isn't it? Mr. {b}."
            for a, b in zip(make_lines(n, 2 * n), make_lines(n), strict=True)
        ]
        for n in (1500, 400, 300, 700)
    ]
    (directory / "a.txt").write_text("".join(f"{line}\n" for line in texts[0]), encoding="utf-8")
    with gzip.open(directory / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(texts[1]))
    with open(directory / "c.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(texts[2])])
    with open(directory / "d.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts[3])


def arguments(inputs: Path, output: Path, name: str) -> list[str]:
    """Return the arguments of the build `name`."""
    flags = [str(inputs / flag) if flag.startswith("*") else flag for flag in BUILDS[name][0]]
    return ["--input", str(inputs / "*"), "--output", str(output), *flags]


def digest(corpus: Path) -> str:
    """Return one digest of all files of a corpus."""
    return hashlib.sha256(json.dumps(digests(corpus)).encode()).hexdigest()


def build_digest(inputs: Path, output: Path, name: str, *flags: str) -> str:
    """Build a corpus in this process, and return its digest."""
    build_corpus.main([*arguments(inputs, output, name), *flags])
    return digest(output)
