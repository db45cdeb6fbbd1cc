"""Checkpoints: damage is detected, and the last intact checkpoint is never deleted."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
import torch

from bilm.errors import CheckpointError
from bilm.training import run_record
from bilm.training.checkpoints import LSTM_STATE, OPTIMIZER, WEIGHTS, CheckpointStore
from tests.bilm.training.records import record_of


def tensors(step: int) -> dict[str, dict[str, torch.Tensor]]:
    return {
        WEIGHTS: {"a": torch.full((3,), float(step))},
        OPTIMIZER: {"a/sum": torch.ones(3)},
        LSTM_STATE: {"cell": torch.zeros(2), "hidden": torch.zeros(2)},
    }


def save(store: CheckpointStore, step: int) -> Path:
    return store.save(tensors(step), record_of(step)).path


def test_reads_saved_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    assert store.newest() is None
    for step in (4, 8):
        save(store, step)
    newest = store.newest()
    assert newest is not None
    assert newest.record.step == 8
    assert newest.record == record_of(8)
    assert newest.tensor(WEIGHTS, "a").tolist() == [8.0, 8.0, 8.0]
    assert newest.names(OPTIMIZER) == {"a/sum"}
    with pytest.raises(CheckpointError, match="no tensor 'b'"):
        newest.tensor(WEIGHTS, "b")


def test_detects_any_flipped_bit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    save(store, 1)
    path = save(store, 2)
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        for position in range(0, len(good), max(1, len(good) // 40)):
            bad = bytearray(good)
            bad[position] ^= 1 << (position % 8)
            file.write_bytes(bad)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                newest = store.newest()
            assert newest is not None
            assert newest.record.step == 1, (file.name, position)
            assert path.name in caplog.text
        file.write_bytes(good)
    assert (store.newest() or newest).record.step == 2


@pytest.mark.parametrize("name", ["weights.safetensors", "run.json", "manifest.json"])
def test_detects_missing_or_truncated_file(name: str, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    save(store, 1)
    path = save(store, 2)
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[:-3])
    newest = store.newest()
    assert newest is not None
    assert newest.record.step == 1
    (path / name).unlink()
    assert (store.newest() or newest).record.step == 1


def test_fails_if_no_checkpoint_is_intact(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    path = save(store, 1)
    (path / "run.json").unlink()
    with pytest.raises(CheckpointError, match="none of the checkpoints"):
        store.newest()
    for file in path.iterdir():
        file.unlink()
    path.rmdir()  # still an error if all are deleted, since one was saved before
    with pytest.raises(CheckpointError, match="none of the checkpoints"):
        store.newest()


def test_prune_keeps_latest_and_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    for step in range(1, 7):
        save(store, step)
    (store.directory / ".step-00000009.abc").mkdir()  # left by a save that was killed
    store.prune(store.verify(store.directory / "step-00000006"), keep_last=2, best_step=3)
    names = sorted(p.name for p in store.directory.iterdir() if p.is_dir())
    assert names == ["step-00000003", "step-00000005", "step-00000006"]


def test_rejects_renamed_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    path = save(store, 1)
    path.rename(path.with_name("step-00000007"))
    with pytest.raises(CheckpointError, match="none of the checkpoints"):
        store.newest()


def test_saving_same_step_replaces_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    save(store, 3)
    save(store, 3)
    assert [p.name for p in store.directory.iterdir() if p.is_dir()] == ["step-00000003"]


def test_prune_keeps_last_intact_checkpoint(tmp_path: Path) -> None:
    """A damaged checkpoint of a later step, from before a resume, does not count."""
    store = CheckpointStore(tmp_path / "checkpoints")
    save(store, 4)
    (save(store, 12) / "run.json").unlink()
    newest = store.newest()
    assert newest is not None
    assert newest.record.step == 4
    saved = store.save(tensors(5), record_of(5))
    store.prune(saved, keep_last=1, best_step=None)
    newest = store.newest()
    assert newest is not None
    assert newest.record.step == 5


def test_rejects_later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    monkeypatch.setattr(run_record, "VERSION", 99)
    record = record_of(1).model_copy(update={"version": 99})
    path = store.save(tensors(1), record).path
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="version 99"):
        store.verify(path)


def sign(path: Path) -> None:
    """Correct the digests, as an attacker would."""
    manifest = path / "manifest.json"
    tree = json.loads(manifest.read_text())
    for name, entry in tree["files"].items():
        data = (path / name).read_bytes() if (path / name).is_file() else b""
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    manifest.write_text(json.dumps(tree, indent=1) + "\n")


def test_rejects_invalid_files_with_matching_digests(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    path = save(store, 1)
    weights = path / "weights.safetensors"
    intact = weights.read_bytes()
    weights.write_bytes(b"\x80\x04 a pickle, perhaps")
    sign(path)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is not an intact safetensors"):
        store.newest()
    weights.unlink()
    os.mkfifo(weights)
    sign(path)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: it is not a regular file"):
        store.newest()
    weights.unlink()
    weights.write_bytes(intact)
    sign(path)
    checkpoint = store.verify(path)
    assert checkpoint.tensor(WEIGHTS, "a", [3]).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(CheckpointError, match=r"'a' is torch.float32 \(3,\); expected .* \(1,\)"):
        checkpoint.tensor(WEIGHTS, "a", [1])


def test_does_not_follow_symbolic_links(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    store.directory.mkdir()
    (tmp_path / "other").mkdir()
    (store.directory / "step-00000001").symlink_to(tmp_path / "other")
    (store.directory / "ever_saved").symlink_to(tmp_path / "made")
    store.prune(store.save(tensors(2), record_of(2)), keep_last=1, best_step=None)
    assert (tmp_path / "other").is_dir()
    assert not (tmp_path / "made").exists()
    assert not (store.directory / "step-00000001").exists()
