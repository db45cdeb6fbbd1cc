from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from bilm.embedding.collector import Collector
from bilm.embedding.embedder import Embedder
from bilm.embedding.output import Output
from tests.bilm.embedding.golden_model import SENTENCES, golden_embedder


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return golden_embedder()


@pytest.mark.parametrize("limits", [{}, {"batch_words": 9, "window_words": 30}])
@pytest.mark.parametrize("pool", ["none", "mean", "max", "mean_max"])
@pytest.mark.parametrize("layers", ["all", "average", "top", (0.5, -1.0, 2.0)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_results_are_functions_of_all_layers(
    embedder: Embedder, layers: Any, pool: Any, dtype: Any, limits: dict[str, int]
) -> None:
    sentences = [*SENTENCES, ["one"], []]
    weights = {"average": [1 / 3] * 3, "top": [0, 0, 1]}
    output = Output(layers, pool, dtype)
    found = golden_embedder(**limits).embed(sentences, output=output)
    for array, whole in zip(found, embedder.embed(sentences), strict=True):
        words = whole.shape[1]
        expected = whole.astype(np.float64)
        if layers != "all":
            expected = np.tensordot(weights.get(layers, layers), expected, axes=1)
        if pool != "none":
            filled = expected if words else np.zeros((*expected.shape[:-2], 1, 32))
            parts = {"mean": filled.mean(axis=-2), "max": filled.max(axis=-2)}
            names = ("mean", "max") if pool == "mean_max" else (pool,)
            expected = np.concatenate([parts[name] for name in names], axis=-1)
        assert array.shape == expected.shape
        assert array.dtype == dtype
        np.testing.assert_allclose(array, expected, atol=2e-6 if dtype == "float32" else 4e-3)


def test_pooled_memory_does_not_grow_with_the_words() -> None:
    """Trace the memory of numpy and Python for a text of 1,500 and of 15,000 words."""
    small = golden_embedder(batch_words=512)
    peaks = []
    for size in (1_500, 15_000):
        words = ["a", "word"] * (size // 2)
        small.embed([words[:1_500]], output=Output(pool="mean_max"))
        tracemalloc.start()
        small.embed([words], output=Output(pool="mean_max"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    whole = 3 * 15_000 * 32 * 4
    assert peaks[1] - peaks[0] < whole / 10  # the list of words itself may grow


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_orders_chunks_of_both_directions_as_in_the_text(steps: int) -> None:
    """Each step contains the index of the word that it reads; boundaries contain 1e6."""
    num_words = [5, 3, 0]
    collector = Collector(Output("top"), num_words, num_layers=1, num_directions=2, dim=1)
    pooled = Collector(Output("top", "mean_max"), num_words, 1, 2, 1)
    border = 1e6
    readings = [[border, *range(n), border, *[border] * (5 - n)] for n in num_words]
    backward = [[border, *range(n)[::-1], border, *[border] * (5 - n)] for n in num_words]
    for direction, rows in enumerate((readings, backward)):
        layer = torch.tensor(rows, dtype=torch.float32).T.unsqueeze(-1)  # (time, rows, dim)
        for start in range(0, 7, steps):
            num_rows = sum(n + 2 > start for n in num_words)
            part = layer[start : start + steps, :num_rows]
            collector.add(direction, start, [part])
            pooled.add(direction, start, [part])
    for n, array, means in zip(num_words, collector.results(), pooled.results(), strict=True):
        np.testing.assert_array_equal(array, np.arange(n)[:, None].repeat(2, axis=1))
        mean, greatest = (np.arange(n).mean(), n - 1) if n else (0, 0)
        np.testing.assert_array_equal(means, [mean, mean, greatest, greatest])


def test_mean_is_accumulated_in_float64() -> None:
    """In float32, 2 ** 24 + 1 is 2 ** 24, so a float32 sum would lose every 1."""
    values = [2.0**24, *[1.0] * 1000]
    layer = torch.tensor([0.0, *values, 0.0]).view(-1, 1, 1)
    collector = Collector(Output("top", "mean"), [len(values)], 1, 1, 1)
    for start in range(0, len(layer), 100):
        collector.add(0, start, [layer[start : start + 100]])
    np.testing.assert_array_equal(collector.results()[0], np.float32(sum(values) / len(values)))
