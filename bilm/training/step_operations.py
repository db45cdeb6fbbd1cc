"""The operations of a training step: arithmetic, memory traffic and launches, from the shapes.

The counts are those of the fused GPU kernels: both directions of an LSTM layer in one launch, and
convolutions by table look-up. A product counts two operations per multiply-add. Traffic counts
each tensor once per operation that reads or writes it, as if caches kept nothing in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from bilm.model.config import ModelConfig
from bilm.text.characters import NUM_CHARACTERS
from bilm.training.config import Config
from bilm.training.memory import FLOAT32_BYTES, distinct_words

# Launches per layer outside the time steps, forward and backward, of both directions.
LAYER_LAUNCHES = 23

# Launches of a time step of a layer: product, cell, projection, clip; forward and backward.
STEP_LAUNCHES = 8

# Launches of a step outside the LSTMs, counted on big.json: encoder, softmax, optimizer.
OTHER_LAUNCHES = 424

# Reads and writes of each weight with a dense gradient: norm, clipping, and update.
UPDATE_PASSES = {"adagrad": 8, "adam": 10, "adamw": 10}

SAMPLED_PASSES, FULL_PASSES = 6, 8  # reads and writes of the logits


@dataclass(frozen=True)
class Operation:
    """A part of a step; `product_flops` are those of matrix products, `flops` all others."""

    name: str
    product_flops: float = 0.0
    flops: float = 0.0
    traffic: float = 0.0  # bytes


@dataclass(frozen=True)
class StepShape:
    """The shape of a step on one rank."""

    rows: float
    unroll: int
    micro_batches: int
    distinct_words: float  # of all micro-batches
    vocabulary: int
    dense_parameters: float

    @classmethod
    def of(cls, config: Config, vocabulary: int, dense_parameters: float, world: int) -> StepShape:
        """Return the shape of a step of a configuration on one of `world` ranks."""
        rows, unroll = config.deepspeed.train_batch_size / world, config.data.unroll_steps
        micro_batches = config.deepspeed.gradient_accumulation_steps
        distinct = distinct_words(rows / micro_batches * unroll, vocabulary) * micro_batches
        return cls(rows, unroll, micro_batches, distinct, vocabulary, dense_parameters)


def count_operations(
    config: Config, shape: StepShape, product_bytes: int = FLOAT32_BYTES
) -> list[Operation]:
    """Return the operations of a step; `product_bytes` is the size of a factor of a product."""
    model = config.model
    slots = shape.rows * shape.unroll * model.num_directions
    return [
        *_encoder(model, shape, product_bytes),
        *_lstm(model, shape, slots, product_bytes),
        _softmax(model, shape, slots),
        Operation(
            "update",
            traffic=FLOAT32_BYTES
            * shape.dense_parameters
            * UPDATE_PASSES[config.train.optimizer.name],
        ),
    ]


def count_launches(config: Config, shape: StepShape) -> int:
    """Return the number of kernel launches of a step."""
    lstm = config.model.lstm
    per_step = STEP_LAUNCHES if lstm.projection_dim != lstm.dim else STEP_LAUNCHES // 2
    layers = lstm.num_layers * (LAYER_LAUNCHES + shape.unroll * per_step)
    return shape.micro_batches * layers + OTHER_LAUNCHES


def _encoder(model: ModelConfig, shape: StepShape, product_bytes: int) -> list[Operation]:
    """Return the operations of the token encoder, which runs once per distinct word."""
    words, dim = shape.distinct_words, model.lstm.projection_dim
    if model.characters is None:
        return [Operation("embedding", traffic=3 * words * dim * FLOAT32_BYTES)]
    width, max_characters = model.characters.num_filters, model.characters.max_characters
    additions = sum(w * n * (max_characters - w + 1) for w, n in model.characters.filters)
    # Backward compares the characters of each maximum with all characters.
    additions += sum(w * n * 2 * NUM_CHARACTERS for w, n in model.characters.filters)
    operations = [
        Operation(
            "character CNN",
            flops=words * additions,
            traffic=words * width * FLOAT32_BYTES * 8,
        )
    ]
    for _ in range(model.characters.num_highway):
        operations += [_dense_product("highway", words, width, 2 * width, product_bytes)]
    if width != dim:
        operations += [_dense_product("projection of words", words, width, dim, product_bytes)]
    return operations


def _lstm(model: ModelConfig, shape: StepShape, slots: float, size: int) -> list[Operation]:
    """Return the operations of all LSTM layers.

    Each time step reads the recurrent weights again. Products with the input, and gradients of
    weights, are computed for all time steps at once.
    """
    dim, out, layers = model.lstm.dim, model.lstm.projection_dim, model.lstm.num_layers
    directions, steps = model.num_directions, shape.unroll * shape.micro_batches
    gates, weights = 4 * dim, directions * 4 * dim * out
    projection = dim * out if dim != out else 0
    # The copies of the weights in the precision of products, and their gradients.
    copies = directions * (2 * 4 * dim * out + projection) * (FLOAT32_BYTES + size) * 2
    stepwise = weights + directions * projection
    operations = [
        Operation(
            "LSTM inputs",
            product_flops=3 * 2 * slots * out * gates,
            traffic=size * (3 * slots * (gates + out) + 3 * weights),
        ),
        Operation(
            "LSTM recurrence",  # forward and backward of each time step
            product_flops=2 * 2 * slots * (out * gates + projection),
            traffic=size * (2 * steps * stepwise + slots * (3 * gates + 4 * out + 2 * dim)),
        ),
        Operation(
            "LSTM gradients of weights",
            product_flops=2 * slots * (out * gates + projection),
            traffic=size * (slots * (gates + dim + 2 * out) + stepwise),
        ),
        Operation(
            "LSTM cells",
            flops=60 * slots * dim,
            traffic=slots * dim * (2 * 9 * size + 6 * FLOAT32_BYTES),
        ),
        Operation(
            "dropout, residual, weight copies",
            traffic=slots * out * FLOAT32_BYTES * 14 + copies * shape.micro_batches,
        ),
    ]
    return [
        Operation(o.name, layers * o.product_flops, layers * o.flops, layers * o.traffic)
        for o in operations
    ]


def _softmax(model: ModelConfig, shape: StepShape, slots: float) -> Operation:
    """Return the loss over the vocabulary; the full softmax computes its logits twice."""
    dim, is_sampled = model.lstm.projection_dim, model.softmax.kind == "sampled"
    size = shape.vocabulary
    columns = min(size, model.softmax.num_negatives) if is_sampled else size
    logits = slots * columns
    num_sets = model.num_directions if is_sampled and not model.softmax.shared_negatives else 1
    return Operation(
        "softmax",
        product_flops=(3 if is_sampled else 4) * 2 * logits * dim,
        flops=10 * logits,
        traffic=FLOAT32_BYTES * logits * (SAMPLED_PASSES if is_sampled else FULL_PASSES)
        + FLOAT32_BYTES * 4 * columns * dim * num_sets * shape.micro_batches,
    )


def _dense_product(
    name: str, rows: float, inputs: int, outputs: int, product_bytes: int
) -> Operation:
    """Return a product with a weight, forward and both gradients, and its pointwise part."""
    return Operation(
        name,
        product_flops=3 * 2 * rows * inputs * outputs,
        traffic=product_bytes * 3 * (rows * (inputs + outputs) + inputs * outputs)
        + FLOAT32_BYTES * 4 * rows * outputs,
    )
