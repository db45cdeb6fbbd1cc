"""Run commands in tests, and read corpora as words or digests."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from bilm.corpus.reader import Corpus

REPOSITORY = Path(__file__).parents[2]


def run(module: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run `python -m data_tools.<module>` as a user does."""
    command = [sys.executable, "-m", f"data_tools.{module}", *map(str, args)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)


def sentences(corpus: Path, split: str = "train") -> list[list[str]]:
    """Return all sentences of a split as words, in their order on disk."""
    opened = Corpus.open(corpus)
    result = []
    for index in range(len(opened.blocks(split))):
        ids, lengths = opened.block(split, index)
        words = [opened.lexicon.word(i) for i in ids.tolist()]
        start = 0
        for length in lengths.tolist():
            result.append(words[start : start + length])
            start += length
    return result


def digests(directory: Path) -> dict[str, str]:
    """Return the sha256 of every file below `directory`, including hidden files."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
