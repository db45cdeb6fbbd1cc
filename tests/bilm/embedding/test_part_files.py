from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bilm.embedding.part_files import PartFile
from bilm.embedding.vector_file import Line


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_round_trip(tmp_path: Path, dtype: str) -> None:
    part = PartFile(tmp_path / "part.safetensors")
    arrays = [np.random.default_rng(n).normal(size=(3, n, 4)).astype(dtype) for n in (2, 0, 5)]
    lines = [Line(f"é {array.shape[1]} \n", ["é"] * array.shape[1]) for array in arrays]
    part.write(arrays, lines)
    assert part.num_lines() == 3
    for (array, line), expected, expected_line in zip(part.contents(), arrays, lines, strict=True):
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, expected)
        assert line == expected_line
    # The tensors of earlier versions, which resume and are resumed.
    tensors = load_file(part.path)
    assert tensors["shapes"].tolist() == [[3, 2, 4], [3, 0, 4], [3, 5, 4]]
    assert tensors["values"].shape == (84,)
    assert tensors["lines"].dtype == np.uint8


def test_writes_views_of_larger_arrays(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "part.safetensors")
    mixed = np.arange(24, dtype=np.float32).reshape(1, 6, 4)[0]
    part.write([mixed, mixed[:, ::2]], [Line("a", ["a"] * 6)] * 2)
    arrays = [array for array, _ in part.contents()]
    np.testing.assert_array_equal(arrays[0], mixed)
    np.testing.assert_array_equal(arrays[1], mixed[:, ::2])
