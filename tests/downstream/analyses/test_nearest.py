from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downstream.analyses import nearest
from downstream.analyses.nearest import LayerRows, Match, nearest_rows, norms_of


def brute_force(vectors: Any, query: Any, count: int) -> list[int]:
    """Return the rows by cosine in float64, equal ones by number."""
    exact = vectors.astype(np.float64)
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(query.astype(np.float64))
    cosines = np.divide(exact @ query, norms, out=np.zeros(len(exact)), where=norms > 0)
    return [int(i) for i in np.argsort(-cosines.round(9), kind="stable")[:count]]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 70),
    count=st.integers(1, 80),
    block=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_equals_brute_force(rows: int, count: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few different rows, so that many cosines are equal.
    vectors = rng.standard_normal((7, 5)).astype(np.float16)[rng.integers(0, 7, rows)]
    query = rng.standard_normal(5).astype(np.float32)
    exact = vectors.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "BLOCK_ROWS", block)
        found = nearest_rows(LayerRows([vectors], [1.0], norms_of(exact)), query, count)
    assert len(found) == min(count, rows)
    expected = brute_force(exact, query, count)
    cosine = {i: m.cosine for i, m in enumerate(found)}
    for place, (match, row) in enumerate(zip(found, expected, strict=True)):
        assert exact[match.row] @ query == pytest.approx(exact[row] @ query, abs=1e-5)
        assert place == 0 or cosine[place - 1] >= cosine[place]


def test_equal_rows_are_in_order() -> None:
    vectors = np.ones((100, 3), np.float32)
    found = nearest_rows(LayerRows([vectors], [1.0], norms_of(vectors)), vectors[0], 5)
    assert [match.row for match in found] == [0, 1, 2, 3, 4]


def test_searches_a_mix_of_layers() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((50, 6)).astype(np.float32) for _ in range(3)]
    weights = [0.5, 0.0, -2.0]
    mixed = np.tensordot(np.array(weights, np.float32), np.stack(layers), 1).astype(np.float32)
    query = rng.standard_normal(6).astype(np.float32)
    found = nearest_rows(LayerRows(layers, weights, norms_of(mixed)), query, 10)
    assert [match.row for match in found] == brute_force(mixed, query, 10)


def test_zero_vectors_have_cosine_zero() -> None:
    vectors = np.array([[0, 0], [-1, 0]], np.float32)
    rows = LayerRows([vectors], [1.0], norms_of(vectors))
    assert nearest_rows(rows, np.array([1, 0], np.float32), 2) == [Match(0, 0.0), Match(1, -1.0)]
