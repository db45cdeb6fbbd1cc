from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.errors import CheckpointError
from downstream.features import mapped_rows
from downstream.features.mapped_rows import MappedRows

ROWS = np.arange(120, dtype="<f4").reshape(40, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ROWS.tofile(tmp_path / "rows.bin")
    return tmp_path / "rows.bin"


def test_rows_are_right_when_pages_are_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_rows, "_RESIDENT_BYTES", 50)
    rows = MappedRows(path, ROWS.dtype, ROWS.shape)
    assert len(rows) == 40
    for i in range(40):
        np.testing.assert_array_equal(rows[i : i + 1], ROWS[i : i + 1])
    np.testing.assert_array_equal(rows[np.array([7, 3])], ROWS[[7, 3]])


@pytest.mark.parametrize("shape", [(39, 3), (40, 4), (0, 3)])
def test_rejects_wrong_size(path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(CheckpointError, match=r"rows\.bin must have"):
        MappedRows(path, ROWS.dtype, shape)
