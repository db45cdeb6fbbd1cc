"""Errors of `downstream.srl`, which are found before any head is trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError
from downstream.srl import main
from tests.conftest import ROOT
from tests.downstream.tag_task import make_tag_place, tag_flags, write_roles

TOKENS = ["cat", "sat", "on"]
GOOD = ["B-ARG0", "B-V", "O"]


def row(tags: list[str], index: Any = 1) -> dict[str, Any]:
    return {"tokens": TOKENS, "predicates": [{"index": index, "tags": tags}]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tag_place(tmp_path_factory.mktemp("srl"))


@pytest.mark.parametrize(
    ("flag", "bad", "message"),
    [
        ("--train", row(["I-ARG0", "B-V", "O"]), "the tag 'I-ARG0' starts the sentence"),
        ("--test", row(["B-ARG0", "B-V", "I-ARG0"]), "the tag 'I-ARG0' follows 'B-V'"),
        ("--test", row(["X", "B-V", "O"]), "the tag 'X' is not O, B-TYPE or I-TYPE"),
        ("--train", row(["B-ARG0", "O", "O"]), "the predicate at 1 has the tag 'O'; it must be"),
        ("--validation", row(["B-V", "B-V", "O"]), "the word 0 has the tag B-V too"),
        ("--test", row(GOOD[:2]), "the predicate at 1 has 2 tags for 3 words"),
        ("--train", row([*GOOD, "O"]), "the predicate at 1 has 4 tags for 3 words"),
        ("--test", row(["B-NEW", "B-V", "O"]), "the label 'B-NEW' does not occur in"),
        ("--test", row(GOOD, index=3), "the index of a predicate"),
        ("--test", row(GOOD, index=None), "the index of a predicate"),
        ("--test", {"tokens": TOKENS}, "has no field 'predicates'"),
        ("--test", {"tokens": TOKENS, "predicates": {}}, "predicates is {}; expected a list"),
        ("--test", {"tokens": [], "predicates": []}, "tokens"),
    ],
)
def test_rejects_bad_roles_before_the_bilm_reads(
    place: Path, tmp_path: Path, flag: str, bad: Any, message: str
) -> None:
    path = write_roles(tmp_path / "bad.jsonl", [row(GOOD), bad])
    model, cache = f"--model={place / 'model'}", f"--cache={tmp_path / 'cache'}"
    with pytest.raises(BilmError, match=r"bad\.jsonl, line 2") as error:
        main([*tag_flags(place, "mistake", model, cache, suffix=".jsonl"), f"{flag}={path}"])
    assert message in str(error.value)
    assert not (place / "mistake").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("flag", "tags", "message"),
    [
        ("--train", ["I-ARG0", "B-V", "O"], "the tag 'I-ARG0' starts the sentence"),
        ("--train", ["B-ARG0", "O", "O"], "has the tag 'O'; it must be B-V"),
        ("--test", ["B-NEW", "B-V", "O"], "the label 'B-NEW' does not occur in"),
        ("--test", ["B-V"], "has 1 tag for 3 words"),
    ],
)
def test_error_exits_with_2(
    place: Path, tmp_path: Path, flag: str, tags: list[str], message: str
) -> None:
    path = write_roles(tmp_path / "bad.jsonl", [row(tags)])
    flags = [*tag_flags(place, "no", "--mix=none", suffix=".jsonl"), f"{flag}={path}"]
    command = [sys.executable, "-m", "bilm", "tasks", "srl", *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert f"{path}, line 1" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
