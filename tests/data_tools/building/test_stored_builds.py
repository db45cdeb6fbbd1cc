"""Builds give the bytes of version 0.1.0 with any number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_tools.building import stored_builds
from tests.data_tools.building.stored_builds import BUCKET_WORDS, BUILDS, RANGE_TYPES, build_digest


@pytest.mark.parametrize("workers", ["1", "2", "4"])
@pytest.mark.parametrize("name", BUILDS)
def test_writes_the_stored_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, workers: str
) -> None:
    monkeypatch.setattr("data_tools.building.shuffle.BUCKET_WORDS", BUCKET_WORDS)
    monkeypatch.setattr("data_tools.building.merging.RANGE_TYPES", RANGE_TYPES)
    monkeypatch.setattr("data_tools.reading.parts.MIN_PART_BYTES", 20_000)
    monkeypatch.setattr("data_tools.building.shuffle.RUN_WORDS", 3000)  # with one process
    stored_builds.write_inputs(tmp_path / "inputs")
    found = build_digest(tmp_path / "inputs", tmp_path / "corpus", name, "--workers", workers)
    assert found == BUILDS[name][1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "inputs"]
