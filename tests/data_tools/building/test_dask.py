"""Builds on a real Dask scheduler with real workers, one of which is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data_tools.building.stored_builds import (
    BUCKET_WORDS,
    BUILDS,
    RANGE_TYPES,
    build_digest,
    write_inputs,
)
from tests.data_tools.corpus_reading import REPOSITORY

pytest.importorskip("distributed", reason="dask is not installed: pip install 'bilm[dask]'")

SECONDS = 60


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not exist"
        time.sleep(0.005)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and its two workers."""
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with open(tmp_path / "dask.log", "wb") as log:

        def start(*args: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*dask, *args, *options], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )

        processes = [start("scheduler", "--host", "127.0.0.1", "--port", "0")]
        try:
            wait_for(file)
            worker = ("worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
            processes += [start(*worker) for _ in range(2)]
            yield json.loads(file.read_text())["address"], processes[1:]
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()


@pytest.mark.launch
@pytest.mark.parametrize("kills", [False, True])
def test_builds_the_stored_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
    kills: bool,
) -> None:
    monkeypatch.setattr("data_tools.building.shuffle.BUCKET_WORDS", BUCKET_WORDS)
    monkeypatch.setattr("data_tools.building.merging.RANGE_TYPES", RANGE_TYPES)
    monkeypatch.setattr("data_tools.reading.parts.MIN_PART_BYTES", 10_000)
    monkeypatch.chdir(tmp_path)  # the workers have another directory
    write_inputs(tmp_path / "inputs")
    address, workers = cluster

    def kill_worker() -> None:
        wait_for(tmp_path / ".corpus.build/parts/000001")
        workers[0].kill()

    thread = threading.Thread(target=kill_worker)
    if kills:
        thread.start()
    found = build_digest(Path("inputs"), Path("corpus"), "moses", "--scheduler", address)
    if kills:
        thread.join()
        assert workers[0].wait(SECONDS) != 0
    assert found == BUILDS["moses"][1]
