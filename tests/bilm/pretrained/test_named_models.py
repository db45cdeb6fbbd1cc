"""The models that come with bilm: their files, checksums and vectors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bilm import Embedder, PretrainedBiLm
from bilm.errors import CheckpointError
from bilm.pretrained import named_models
from bilm.pretrained.checksums import CHECKSUMS_FILE
from bilm.pretrained.named_models import MODELS, model_path
from tests.conftest import ROOT

MAX_BYTES = 25_000_000
SENTENCES = ["The bank of the river .", "The bank lends money ."]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder.from_pretrained("english-small", device="cpu")


def test_every_directory_is_listed() -> None:
    assert sorted(MODELS) == sorted(path.name for path in (ROOT / "models").iterdir())


@pytest.mark.parametrize("name", MODELS)
def test_files_are_small_and_described(name: str) -> None:
    directory = model_path(name)
    listed = json.loads((directory / CHECKSUMS_FILE).read_text(encoding="utf-8"))["files"]
    files = {path.name: path.stat().st_size for path in directory.iterdir()}
    assert listed.keys() | {CHECKSUMS_FILE} == files.keys()
    assert sum(files.values()) <= MAX_BYTES
    card = (directory / "README.md").read_text(encoding="utf-8")
    for heading in ("Model", "Training data", "Training", "Evaluation", "Intended use", "Limits"):
        assert f"\n## {heading}\n" in card
    assert "not stated" not in card


@pytest.mark.parametrize("name", MODELS)
def test_a_changed_byte_in_any_file_is_rejected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    copy = tmp_path / "models" / name
    shutil.copytree(model_path(name), copy)
    monkeypatch.setattr(named_models, "_PACKAGE", tmp_path)
    assert PretrainedBiLm.open(name).vocabulary is not None
    for file in sorted(copy.iterdir()):
        original = file.read_bytes()
        for place in (0, len(original) // 2, len(original) - 1):
            changed = bytearray(original)
            changed[place] ^= 1
            file.write_bytes(changed)
            with pytest.raises(CheckpointError, match=r"changed|differs from its checksum"):
                PretrainedBiLm.open(name)
        file.write_bytes(original)
    assert PretrainedBiLm.open(name).vocabulary is not None


def test_the_two_banks_differ_only_above_layer_0(embedder: Embedder) -> None:
    river, money = (array[:, 1] for array in embedder.embed(SENTENCES))  # (layers, dim)
    cosines = (river * money).sum(1) / np.linalg.norm(river, axis=1) / np.linalg.norm(money, axis=1)
    assert np.array_equal(river[0], money[0])
    assert cosines[0] == pytest.approx(1, abs=1e-6)
    assert cosines[-1] < 0.9


def test_context_tells_the_senses_apart(embedder: Embedder) -> None:
    """The nearest occurrence of an ambiguous word has the same sense."""
    sentences = [
        "They sat down on the bank of the river .",
        "The boat was tied to the bank of the stream .",
        "The bank refused to lend him the money .",
        "The bank will pay the money into your account .",
    ]
    words = [sentence.split() for sentence in sentences]
    top = np.stack(
        [a[-1, w.index("bank")] for a, w in zip(embedder.embed(words), words, strict=True)]
    )
    top /= np.linalg.norm(top, axis=1, keepdims=True)
    similar = top @ top.T
    assert similar[0, 1] > max(similar[0, 2], similar[0, 3])
    assert similar[2, 3] > max(similar[2, 0], similar[2, 1])


def test_works_offline_without_other_files(tmp_path: Path) -> None:
    code = (
        "from bilm import Embedder\n"
        f"arrays = Embedder.from_pretrained('english-small').embed({SENTENCES!r})\n"
        "print([a.shape for a in arrays])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[(3, 6, 384), (3, 5, 384)]\n"
    assert list(tmp_path.iterdir()) == []
