from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_tools.corpus_building import reject


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--heldout", "1.5"], r"--heldout is 1\.5; a share must be"),
        (["--heldout", "nan"], r"--heldout is nan; a share must be"),
        (["--heldout", "1e-9"], r"the split 'heldout' would be empty.*--heldout 1e-09"),
        (["--heldout", "0.999999"], r"the split 'train' would be empty"),
        (["--heldout", "nowhere.txt"], r"--heldout nowhere\.txt: no such file"),
        (["--workers", "0"], r"--workers is 0; it must be at least 1"),
        (["--max-vocab", "3"], r"--max-vocab is 3; it must be at least 4"),
        (["--min-count", "9"], r"no word occurs at least 9 times.*decrease --min-count"),
        (["--pieces", "10"], r"--pieces is 10; it must be at least 300"),
        (["--shard-words", "0"], r"--shard-words is 0"),
        (["--seed", "-1"], r"--seed is -1; it must be at least 0"),
        (["--seed", str(2**63)], r"--seed is \d+; it must be below"),
        (["--shuffle", "documents"], r"requires --lines documents.*no document boundaries"),
        (["--sentencepiece-model", "m"], r"requires --tokenizer sentencepiece"),
    ],
)
def test_rejects_invalid_flags(tmp_path: Path, flags: list[str], message: str) -> None:
    (tmp_path / "a.txt").write_text("a b c\nd e f\n")
    reject(tmp_path, "a.txt", *flags, message=message)


def test_rejects_holding_out_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b c\n")
    message = "contains all files of --input"
    reject(tmp_path, "a.txt", "--heldout", tmp_path / "a.txt", message=message)
