"""Valid calls of every operation with C code, with random sizes and values."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilm.kernels.char_cnn import filter_maxima
from bilm.kernels.dropout import DropoutSeed, dropout
from bilm.kernels.full_softmax import full_loss, most_likely
from bilm.kernels.highway import HighwayWeights, highway
from bilm.kernels.lstm import lstm
from bilm.kernels.lstm_types import Clips, LayerState, LstmWeights
from bilm.kernels.sampled_softmax import Candidates, add_rows, sampled_loss, to_probabilities
from bilm.kernels.sparse_rows import AdamStep, Moments, Rows, adagrad_rows, adam_rows
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import BiLm
from tests.conftest import tiny_model_config

VOCABULARY = 7


@dataclass
class Call:
    """A function and its arguments, and the names of those whose gradient is compared."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    gradients: tuple[str, ...] = ()
    expand: bool = False  # whether the gradient of the result is an expanded tensor


Maker = Callable[[random.Random], Call]


def dtype_of(rng: random.Random) -> torch.dtype:
    return rng.choice([torch.float32, torch.float32, torch.float64])


def ids_of(limit: int, *shape: int) -> Tensor:
    return torch.randint(0, limit, shape)


def some(rng: random.Random, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if rng.random() < 0.5)


def make_filter_maxima(rng: random.Random) -> Call:
    dtype, table, width = dtype_of(rng), rng.choice([1, 5, 261]), rng.randint(1, 3)
    char_ids = ids_of(table, rng.randint(0, 4), rng.randint(3, 6))
    if table == 261:  # often padding, also in the middle
        char_ids[torch.rand(char_ids.shape) < 0.4] = 260
    arguments = {
        "char_ids": char_ids,
        "embedding": torch.randn(table, 3, dtype=dtype),
        "first": torch.randn(rng.randint(1, 70), 3, 1, dtype=dtype),
        "second": torch.randn(2, 3, width, dtype=dtype),
    }
    names = some(rng, "embedding", "first", "second")

    def call(char_ids: Tensor, embedding: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return filter_maxima(char_ids, embedding, [first, second])

    return Call(call, arguments, names, rng.random() < 0.5)


def make_highway(rng: random.Random) -> Call:
    dtype, dim = dtype_of(rng), rng.randint(1, 6)
    x = torch.randn(rng.randint(0, 4), dim, dtype=dtype)
    shapes = ((dim, dim), (dim,), (dim, dim), (dim,))
    weights = [torch.randn(shape, dtype=dtype) for shape in shapes]
    arguments = {"x": x, **dict(zip(HighwayWeights._fields, weights, strict=True))}

    def call(x: Tensor, **weights: Tensor) -> Tensor:
        return highway(x, HighwayWeights(**weights))

    return Call(call, arguments, some(rng, *arguments), rng.random() < 0.5)


def make_lstm(rng: random.Random) -> Call:
    dtype, dim, width = dtype_of(rng), rng.randint(1, 5), rng.randint(1, 4)
    time, rows, input_dim = rng.randint(1, 4), rng.randint(0, 4), rng.randint(1, 4)
    is_projected, has_lengths = rng.random() < 0.6, rng.random() < 0.4
    width = width if is_projected else dim
    arguments: dict[str, Any] = {
        "inputs": torch.randn(time, rows, input_dim, dtype=dtype),
        "weight": torch.randn(input_dim + width, 4 * dim, dtype=dtype),
        "bias": torch.randn(4 * dim, dtype=dtype),
        "projection": torch.randn(dim, width, dtype=dtype) if is_projected else None,
        "cell": torch.randn(rows, dim, dtype=dtype),
        "hidden": torch.randn(rows, width, dtype=dtype),
        "cell_clip": 3.0,
        "projection_clip": 3.0,
        "lengths": ids_of(time + 1, rows).sort(descending=True).values if has_lengths else None,
    }

    def call(**a: Any) -> tuple[Any, ...]:
        weights = LstmWeights(a["weight"], a["bias"], a["projection"])
        clips, lengths = Clips(a["cell_clip"], a["projection_clip"]), a["lengths"]
        outputs, state = lstm(
            a["inputs"], weights, clips, LayerState(a["cell"], a["hidden"]), lengths
        )
        if lengths is not None:  # the others are meaningless
            outputs = outputs.masked_fill(
                ~(torch.arange(len(outputs))[:, None] < lengths)[..., None], 0
            )
        return outputs, *state

    names = some(rng, "inputs", "weight", "bias", "projection", "cell", "hidden")
    return Call(call, arguments, names if rng.random() < 0.6 else (), rng.random() < 0.5)


def make_dropout(rng: random.Random) -> Call:
    x = torch.randn(rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 300), dtype=dtype_of(rng))
    seed = DropoutSeed(rng.getrandbits(63), rng.getrandbits(20), rng.getrandbits(10))

    def call(x: Tensor, rate: float) -> Tensor:
        return dropout(x, rate, seed, layer=1, direction=0)

    return Call(call, {"x": x, "rate": rng.random()}, some(rng, "x"), rng.random() < 0.5)


def make_sampled_loss(rng: random.Random) -> Call:
    dtype, sets, words = dtype_of(rng), rng.randint(1, 2), rng.randint(0, 4)
    negatives = rng.randint(1, VOCABULARY)
    arguments = {
        "hidden": torch.randn(sets, words, 3, dtype=dtype),
        "weight": torch.randn(VOCABULARY, 3, dtype=dtype),
        "bias": torch.randn(VOCABULARY, 1, dtype=dtype),
        "target_ids": ids_of(VOCABULARY, sets, words),
        "target_counts": torch.randn(sets, words, dtype=torch.double),
        "sampled_ids": torch.stack([torch.randperm(VOCABULARY)[:negatives] for _ in range(sets)]),
        "sampled_counts": torch.randn(sets, negatives, dtype=torch.double),
    }

    def call(hidden: Tensor, weight: Tensor, bias: Tensor, **a: Tensor) -> Tensor:
        targets = Candidates(a["target_ids"], a["target_counts"])
        sampled = Candidates(a["sampled_ids"], a["sampled_counts"])
        return sampled_loss(hidden, weight, bias, targets, sampled)

    return Call(call, arguments, some(rng, "hidden", "weight", "bias"), rng.random() < 0.5)


def make_full_loss(rng: random.Random) -> Call:
    dtype, words = dtype_of(rng), rng.randint(1, 4)
    arguments = {
        "hidden": torch.randn(words, 3, dtype=dtype),
        "weight": torch.randn(VOCABULARY, 3, dtype=dtype),
        "bias": torch.randn(VOCABULARY, 1, dtype=dtype),
        "targets": ids_of(VOCABULARY, words),
    }
    return Call(full_loss, arguments, some(rng, "hidden", "weight", "bias"))


def make_most_likely(rng: random.Random) -> Call:
    arguments = make_full_loss(rng).arguments
    del arguments["targets"]

    def call(hidden: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return most_likely(hidden, weight, bias, 2)

    return Call(call, arguments)


def make_to_probabilities(rng: random.Random) -> Call:
    dtype, words, count = dtype_of(rng), rng.randint(0, 4), rng.randint(1, 9)
    arguments = {
        "logits": torch.randn(words, count, dtype=dtype),
        "bias": torch.randn(count, dtype=dtype),
        "true_logit": torch.randn(words, dtype=dtype),
        "hits": ids_of(count + 1, words) - 1,
    }
    return Call(to_probabilities, arguments)


def make_add_rows(rng: random.Random) -> Call:
    dtype, count, dim = dtype_of(rng), rng.randint(0, 5), rng.randint(0, 70)
    arguments = {
        "sums": torch.randn(4, dim, dtype=dtype),
        "places": ids_of(4, count),
        "rows": torch.randn(count, dim, dtype=dtype),
        "scale": torch.randn(count, dtype=dtype),
    }
    return Call(add_rows, arguments)


def _rows_of_table(rng: random.Random, *names: str) -> dict[str, Any]:
    dtype, count, dim = dtype_of(rng), rng.randint(0, 6), rng.randint(0, 5)
    ids = torch.randperm(6)[:count]
    arguments = {name: torch.rand(6, dim, dtype=dtype) + 0.1 for name in names}
    return arguments | {"ids": ids, "values": torch.randn(count, dim, dtype=dtype)}


def make_adagrad_rows(rng: random.Random) -> Call:
    def call(table: Tensor, sums: Tensor, ids: Tensor, values: Tensor, **numbers: float) -> None:
        adagrad_rows(table, sums, Rows(ids, values), **numbers)

    arguments = _rows_of_table(rng, "table", "sums")
    return Call(call, {**arguments, "learning_rate": 0.2, "epsilon": 1e-10})


def make_adam_rows(rng: random.Random) -> Call:
    def call(table: Tensor, ids: Tensor, values: Tensor, **a: Any) -> None:
        step = AdamStep(3, a["learning_rate"], (0.9, 0.99), a["epsilon"])
        adam_rows(table, Moments(a["mean"], a["square"]), Rows(ids, values), step)

    arguments = _rows_of_table(rng, "table", "mean", "square")
    return Call(call, {**arguments, "learning_rate": 0.01, "epsilon": 1e-8})


@functools.cache
def tiny_model() -> BiLm:
    torch.manual_seed(0)
    return BiLm(tiny_model_config(), VOCABULARY).eval()


def make_encoder(rng: random.Random) -> Call:
    characters = tiny_model().config.characters
    assert characters is not None
    ids = ids_of(261, rng.randint(0, 3), characters.max_characters)
    return Call(tiny_model().encoder, {"char_ids": ids})


def make_layers(rng: random.Random) -> Call:
    model, rows, time = tiny_model(), rng.randint(1, 3), rng.randint(1, 3)
    (words,) = make_encoder(rng).arguments.values()
    words = torch.cat([words, words, torch.zeros_like(ids_of(1, 1, words.shape[1]))])
    has_lengths = rng.random() < 0.5
    arguments = {
        "words": words,
        "inverse": ids_of(len(words), 2, rows, time),
        **model.zero_state(rows)._asdict(),
        "lengths": ids_of(time + 1, rows).sort(descending=True).values if has_lengths else None,
    }

    def call(words: Tensor, inverse: Tensor, cell: Tensor, hidden: Tensor, lengths: Any) -> Any:
        _, state = model.layers(words, inverse, BiLstmState(cell, hidden), lengths)
        return list(state)

    return Call(call, arguments)


MAKERS: dict[str, Maker] = {
    name.removeprefix("make_"): maker
    for name, maker in sorted(globals().items())
    if name.startswith("make_")
}
