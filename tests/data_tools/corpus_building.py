"""Build corpora in tests: inputs, a short way to build, and a check that a build fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bilm.errors import BilmError
from data_tools import build_corpus
from tests.data_tools.corpus_reading import digests

WHITESPACE = ["--tokenizer", "whitespace", "--min-count", "1"]
IN_ORDER = ["--heldout", "0", "--shuffle", "none"]


def build(text: Path | str, output: Path, *flags: object) -> Path:
    """Build a corpus in this process, with one worker."""
    args = ["--input", text, "--output", output, "--workers", 1, *WHITESPACE, *flags]
    build_corpus.main([str(arg) for arg in args])
    return output


def make_lines(num_lines: int, seed: int = 0) -> list[str]:
    """Return lines of words with decreasing frequencies, some of which are not ASCII."""
    source = random.Random(seed)
    words = [f"w{i}" for i in range(200)] + ["naïve", "日本", "😀", "<UNK>"]
    weights = [1 / (i + 1) for i in range(len(words))]
    return [
        " ".join(source.choices(words, weights, k=source.randint(1, 20))) for _ in range(num_lines)
    ]


def write_lines(path: Path, num_lines: int = 1000) -> Path:
    """Write `make_lines` to `path`."""
    path.write_text("".join(f"{line}\n" for line in make_lines(num_lines)), encoding="utf-8")
    return path


def reject(tmp_path: Path, pattern: str, *flags: object, message: str) -> None:
    """Check that a build from `pattern` fails with `message` and changes no file."""
    before = digests(tmp_path)
    with pytest.raises(BilmError, match=message):
        build(tmp_path / pattern, tmp_path / "corpus", "--heldout", 0, *flags)
    assert digests(tmp_path) == before
