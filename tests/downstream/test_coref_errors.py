"""Errors of `downstream.coref`, which are found before any head is trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError, CorpusError
from downstream.coref import main
from tests.conftest import ROOT
from tests.downstream.coref_task import coref_flags, documents, make_coref_place, write_documents

GOOD = documents(1, 0)[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_coref_place(tmp_path_factory.mktemp("coref"))


@pytest.mark.parametrize(
    ("flag", "row", "message"),
    [
        ("--train", {**GOOD, "clusters": [[[0, 99]]]}, r"line 2: the mention \[0, 99\] is outside"),
        ("--test", {**GOOD, "clusters": [[[3, 2]]]}, r"line 2: the mention \[3, 2\] starts after"),
        ("--validation", {"sentences": [["a"]]}, "line 2 has no field 'clusters'"),
        ("--test", {**GOOD, "sentences": []}, "line 2: sentences is"),
        ("--test", {**GOOD, "genre": "\ud800"}, "line 2: genre contains a NUL or an unpaired"),
        ("--test", {**GOOD, "doc": "a\0"}, "line 2: doc contains a NUL or an unpaired surrogate"),
        (
            "--test",
            {"sentences": [["a"]], "clusters": [], "speakers": [["\ud800"]]},
            "line 2: a speaker contains a NUL or an unpaired surrogate",
        ),
    ],
)
def test_rejects_bad_documents_before_the_bilm_reads(
    place: Path, tmp_path: Path, flag: str, row: Any, message: str
) -> None:
    path = write_documents(tmp_path / "bad.jsonl", [GOOD, row])
    cache = f"--cache={tmp_path / 'cache'}"
    model = f"--model={place / 'model'}"
    with pytest.raises(BilmError, match=f"bad.jsonl, {message}"):
        main([*coref_flags(place, "mistake", model, cache), f"{flag}={path}"])
    assert not (place / "mistake").exists()
    assert not (tmp_path / "cache").exists()


def test_error_exits_with_2(place: Path, tmp_path: Path) -> None:
    path = write_documents(tmp_path / "bad.jsonl", [{**GOOD, "clusters": [[[0, 0]], [[0, 0]]]}])
    command = [sys.executable, "-m", "bilm", "tasks", "coref", *coref_flags(place, "no")]
    done = subprocess.run(
        [*command, "--mix=none", f"--train={path}"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert "bad.jsonl, line 1: the mention [0, 0] is in the clusters 0 and 1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mix=trainable"], "model is missing"),
        (["--mix=none", "--no-characters"], "needs word vectors or characters"),
        (["--mix=none", "--max-span-words=0"], "--max-span-words is 0; it must be"),
        (["--mix=none", "--format=csv"], '--format is "csv"; it must be'),
    ],
)
def test_rejects_invalid_settings(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main([*coref_flags(place, "mistake"), *more])


def test_rejects_training_documents_without_clusters(place: Path, tmp_path: Path) -> None:
    path = write_documents(
        tmp_path / "none.jsonl", [{**GOOD, "doc": doc, "clusters": [[[0, 0]]]} for doc in "ab"]
    )
    with pytest.raises(CorpusError, match="no training document has a cluster of at least two"):
        main([*coref_flags(place, "no", "--mix=none", "--no-singletons"), f"--train={path}"])


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from downstream.coref import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(['--help'])\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
