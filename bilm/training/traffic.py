"""The estimate of the bytes that a rank sends per step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilm.model.negatives import draw_negatives
from bilm.training.config import Config
from bilm.training.memory import FLOAT32_BYTES

BFLOAT16_BYTES = 2
INT64_BYTES = 8


@dataclass(frozen=True)
class Traffic:
    """The bytes that one rank sends per step."""

    dense: float
    sparse: float


def traffic(config: Config, parameters: dict[str, int], world: int) -> Traffic:
    """Return the bytes that a rank sends per step, by ring all-reduce and ring all-gather.

    `parameters` are counts by module. For a sampled softmax, the rows of the negatives are reduced,
    and those of other targets are gathered with their ids; `bilm.distributed.row_exchange` does so.
    """
    if world == 1:
        return Traffic(0.0, 0.0)
    is_lower = config.deepspeed.communication_data_type == "bf16"
    value_bytes = BFLOAT16_BYTES if is_lower else FLOAT32_BYTES
    table = parameters["softmax"]
    dense = float(sum(parameters.values()))
    sparse = 0.0
    if config.model.softmax.kind == "sampled":
        dense -= table
        width = config.model.lstm.projection_dim + 1
        slots = config.deepspeed.train_batch_size / world * config.data.unroll_steps
        negatives, targets = _distinct_rows(config, table // width, slots)
        reduced = 2 * (world - 1) / world * negatives * width * value_bytes
        ids = config.model.num_directions * slots * INT64_BYTES
        sparse = reduced + (world - 1) * (targets * width * value_bytes + ids)
    return Traffic(2 * (world - 1) / world * dense * value_bytes, sparse)


def _distinct_rows(config: Config, vocabulary: int, slots: float) -> tuple[float, float]:
    """Return the distinct negatives of a step, and a rank's expected number of other targets.

    Words are assumed to follow Zipf's law. The two directions of a rank predict the same words.
    """
    settings = config.model.softmax
    num_sets = 1 if settings.shared_negatives else config.model.num_directions
    is_negative = np.zeros(vocabulary, dtype=bool)
    for number in range(num_sets):
        drawn = draw_negatives(settings.num_negatives, vocabulary, (config.train.seed, 0, number))
        is_negative[drawn.ids.numpy()] = True
    weights = 1 / np.arange(1, vocabulary + 1)
    shares = weights / (weights.sum() + 1)
    are_targets = 1 - np.exp(slots * np.log1p(-shares))
    return float(is_negative.sum()), float(are_targets[~is_negative].sum())
