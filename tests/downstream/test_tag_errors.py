"""Errors of `downstream.tag`, which are found before any head is trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bilm.errors import BilmError
from downstream.tag import main
from tests.conftest import ROOT
from tests.downstream.tag_task import make_tag_place, tag_flags


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tag_place(tmp_path_factory.mktemp("tag"))


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("--test", "a X O\nb O\n", "bad.tsv, line 2 has 2 columns"),
        ("--train", "a X O\nb X I-PER\n", "bad.tsv, line 2: the tag 'I-PER' follows 'O'"),
        ("--test", "a X O\n\nb X B-ORG\n", "bad.tsv, line 3: the label 'B-ORG' does not occur in"),
        ("--validation", "a X B-ORG\n", "bad.tsv, line 1: the label 'B-ORG'"),
        ("--train", "", "bad.tsv has no sentences"),
        ("--train", "a X O\n\nb X O\n", "bad.tsv has only one label, 'O'; at least two are needed"),
        ("--test", "a\0 X O\n", "bad.tsv, line 1 contains a NUL"),
    ],
)
def test_rejects_bad_sentences_before_the_bilm_reads(
    place: Path, tmp_path: Path, flag: str, text: str, message: str
) -> None:
    path = tmp_path / "bad.tsv"
    path.write_text(text, "utf-8")
    cache = f"--cache={tmp_path / 'cache'}"
    with pytest.raises(BilmError, match=message):
        main([*tag_flags(place, "mistake", f"--model={place / 'model'}", cache), f"{flag}={path}"])
    assert not (place / "mistake").exists()
    assert not (tmp_path / "cache").exists()


def test_error_exits_with_2(place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("a X I-A\n", "utf-8")
    command = [sys.executable, "-m", "bilm", "tasks", "tag", *tag_flags(place, "no")]
    command += ["--mix=none", f"--train={tmp_path / 'bad.tsv'}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "bad.tsv, line 1: the tag 'I-A' starts the sentence" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mix=trainable"], "model is missing"),
        (["--mix=none", "--no-characters"], "needs word vectors or characters"),
        (["--mix=none", "--elmo-at=both"], "set it to 'input'"),
        (["--model=m", "--elmo-at=output"], "needs word vectors or characters"),
        (["--mix=none", "--scheme=bioes"], '--scheme is "bioes"; it must be'),
        (["--mix=none", "--encoder-dim=65536"], "the head needs at least .* reduce the widths"),
        (["--mix=none", "--device=nowhere"], "the device is 'nowhere'"),
    ],
)
def test_rejects_invalid_settings(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main([*tag_flags(place, "mistake"), *more])
