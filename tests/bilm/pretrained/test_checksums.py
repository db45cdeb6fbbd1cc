from __future__ import annotations

import json
from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from bilm.pretrained.checksums import CHECKSUMS_FILE, verify_checksums
from bilm.pretrained.model_directory import PretrainedBiLm
from tests.bilm.pretrained.test_model_directory import pretrained_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pretrained_of().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["README.md", "config.json", "model.safetensors", "vocab.txt"])
def test_rejects_a_changed_byte(name: str, model: Path) -> None:
    data = bytearray((model / name).read_bytes())
    data[len(data) // 2] ^= 1
    (model / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} differs from its checksum"):
        PretrainedBiLm.from_pretrained(model)


def test_rejects_truncated_and_missing_files(model: Path) -> None:
    (model / "vocab.txt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="differs from its checksum"):
        PretrainedBiLm.from_pretrained(model)
    (model / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.txt is missing"):
        PretrainedBiLm.from_pretrained(model)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"files": {"../config.json": {"bytes": 1, "sha256": "0" * 64}}}, "pattern"),
        ({"files": {"config.json": {"bytes": -1, "sha256": "0" * 64}}}, "bytes: "),
        ({"files": {"config.json": {"bytes": 1, "sha256": "0" * 63}}}, "sha256: "),
        ({"files": []}, "files: "),
        ({}, "files: is missing"),
    ],
)
def test_rejects_invalid_checksums(record: object, message: str, model: Path) -> None:
    (model / CHECKSUMS_FILE).write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match=message):
        PretrainedBiLm.from_pretrained(model)


def test_a_directory_without_checksums_is_accepted(model: Path) -> None:
    (model / CHECKSUMS_FILE).unlink()
    (model / "README.md").write_text("changed")
    assert PretrainedBiLm.from_pretrained(model).vocabulary is not None


def test_compares_the_checksums_with_a_known_digest(model: Path) -> None:
    with pytest.raises(CheckpointError, match=r"checksums\.json was changed"):
        verify_checksums(model, "0" * 64)
