"""Saves in a background thread, with writers that wait or fail; the loop is in tests/launch/."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bilm.training.background_saves import BackgroundSaves, FinishedSave, Snapshot
from bilm.training.checkpoints import LSTM_STATE, OPTIMIZER, WEIGHTS, Checkpoint, CheckpointStore
from bilm.training.run_record import RunRecord
from tests.bilm.training.records import record_of

SECONDS = 60


class WaitingStore(CheckpointStore):
    """A store that writes only when it is permitted to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.is_writing, self.is_permitted = threading.Event(), threading.Event()
        self.threads: set[threading.Thread] = set()

    def save(self, tensors: Snapshot, record: RunRecord) -> Checkpoint:
        self.threads.add(threading.current_thread())
        self.is_writing.set()
        assert self.is_permitted.wait(SECONDS)
        return super().save(tensors, record)


@pytest.fixture
def store(tmp_path: Path) -> WaitingStore:
    return WaitingStore(tmp_path / "checkpoints")


@pytest.fixture
def saves(store: WaitingStore) -> Iterator[BackgroundSaves]:
    with BackgroundSaves(store, keep_last=2) as saves:
        yield saves
        store.is_permitted.set()


def start(saves: BackgroundSaves, step: int, weight: torch.Tensor | None = None) -> None:
    weight = torch.full((3,), float(step)) if weight is None else weight
    tensors = {
        WEIGHTS: saves.buffers[WEIGHTS].copy([("a", weight)]),
        OPTIMIZER: {"a/sum": torch.ones(3)},
        LSTM_STATE: {"cell": torch.zeros(2), "hidden": torch.zeros(2)},
    }
    saves.start(tensors, record_of(step), time.monotonic())


def finish(saves: BackgroundSaves) -> FinishedSave:
    finished = saves.finished(wait=True)
    assert finished is not None
    return finished


def test_saves_values_of_snapshot(saves: BackgroundSaves, store: WaitingStore) -> None:
    weight = torch.full((3,), 5.0)
    start(saves, 1, weight)
    assert store.is_writing.wait(SECONDS)
    weight.fill_(7.0)  # the next step
    assert saves.finished() is None
    store.is_permitted.set()
    finished = finish(saves)
    assert finished.error is None
    assert 0 <= finished.stall_seconds <= finished.seconds
    newest = store.newest()
    assert newest is not None
    assert finished.path == newest.path
    assert newest.tensor(WEIGHTS, "a").tolist() == [5.0] * 3
    assert threading.current_thread() not in store.threads


def test_returns_each_save_once_and_keeps_latest_two(
    saves: BackgroundSaves, store: WaitingStore
) -> None:
    store.is_permitted.set()
    assert saves.finished(wait=True) is None
    for step in (1, 2, 3):
        start(saves, step)
        assert finish(saves).step == step
        assert saves.finished(wait=True) is None
    assert len(store.threads) == 1
    names = sorted(path.name for path in store.directory.glob("step-*"))
    assert names == ["step-00000002", "step-00000003"]


def test_block_ends_after_last_save(tmp_path: Path) -> None:
    store = WaitingStore(tmp_path / "checkpoints")
    with BackgroundSaves(store, keep_last=2) as saves:
        start(saves, 1)
        threading.Timer(0.2, store.is_permitted.set).start()
    newest = store.newest()
    assert newest is not None
    assert newest.record.step == 1


def test_reports_failure_until_next_save(
    saves: BackgroundSaves, store: WaitingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.is_permitted.set()
    store.directory.write_text("a file in place of the directory")
    start(saves, 1)
    saves._writer.submit(lambda: None).result()  # runs after the save
    assert saves.has_failed
    assert saves.failure is None
    finished = finish(saves)
    assert finished.path is None
    assert finished.error is saves.failure
    assert "cannot create" in str(saves.failure)
    assert saves.has_failed
    store.directory.unlink()
    start(saves, 2)
    assert finish(saves).error is None
    assert not saves.has_failed


def test_failed_save_keeps_no_memory(saves: BackgroundSaves, store: WaitingStore) -> None:
    store.is_permitted.set()
    store.directory.write_text("a file in place of the directory")
    weight = torch.zeros(3)
    freed = threading.Event()
    tensors = {WEIGHTS: {"a": weight}, OPTIMIZER: {}, LSTM_STATE: {}}
    weakref.finalize(weight, freed.set)
    saves.start(tensors, record_of(1), time.monotonic())
    del tensors, weight
    assert finish(saves).error is not None
    assert freed.wait(SECONDS)
