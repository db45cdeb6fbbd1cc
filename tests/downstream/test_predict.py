"""Errors of `downstream.predict`; its outputs are tested with the task of each head."""

from __future__ import annotations

from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from downstream.predict import main


def test_rejects_a_directory_that_is_not_a_trained_head(tmp_path: Path) -> None:
    common = ["--input", "-", "--output", str(tmp_path / "out.jsonl")]
    for head in (tmp_path / "nohead", tmp_path):
        message = f"{head} is not a trained head: it does not exist, or has none of classifier.json"
        with pytest.raises(CheckpointError, match=message):
            main(["--head", str(head), *common])
    assert list(tmp_path.iterdir()) == []
