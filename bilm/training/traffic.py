"""The estimate of the bytes that a rank sends per step.

All collectives are rings: an all-reduce of n bytes sends 2 (P - 1) / P n per rank, an all-gather of
n bytes from each rank sends (P - 1) n. `benchmarks/links.py` compares this with real runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bilm.model.negatives import draw_negatives
from bilm.training.config import Config
from bilm.training.memory import FLOAT32_BYTES

BFLOAT16_BYTES = 2
INT64_BYTES = FLOAT64_BYTES = 8

# Ethernet, IPv4, and TCP with timestamps, for each packet of at most 1500 bytes without Ethernet.
HEADER_BYTES, PAYLOAD_BYTES = 14 + 20 + 32, 1500 - 20 - 32

# By ZeRO stage, in units of (P - 1) / P of the bytes of all dense weights. DeepSpeed averages
# gradients by an all-reduce at stages 1 and 2, and by a reduce-scatter at stage 3. It gathers the
# weights after the update, or at stage 3 before the forward and the backward pass.
SENT_GRADIENTS, GATHERED_WEIGHTS = (2, 2, 2, 1), (0, 1, 1, 2)


@dataclass(frozen=True)
class Traffic:
    """The bytes that one rank sends per step, by kind, without packet headers."""

    dense: float = 0.0  # gradients
    negatives: float = 0.0  # rows of the softmax that all ranks have in common
    targets: float = 0.0  # rows of other targets
    ids: float = 0.0  # of targets
    weights: float = 0.0  # at ZeRO stages 1 to 3
    reports: float = 0.0  # losses, counts and requests to stop

    @property
    def sparse(self) -> float:
        """The rows of the sampled softmax and their ids."""
        return self.negatives + self.targets + self.ids

    @property
    def payload(self) -> float:
        """The sum of all kinds."""
        return float(sum(getattr(self, each.name) for each in fields(self)))

    @property
    def headers(self) -> float:
        """The headers of the packets in which this is sent."""
        return self.payload * HEADER_BYTES / PAYLOAD_BYTES


def traffic(config: Config, parameters: dict[str, int], world: int) -> Traffic:
    """Return the bytes that a rank sends per step.

    `parameters` are counts by module. For a sampled softmax, the rows of the negatives are reduced,
    and those of other targets are gathered with their ids; `bilm.distributed.row_exchange` does so.
    """
    if world == 1:
        return Traffic()
    is_lower = config.deepspeed.communication_data_type == "bf16"
    value_bytes = BFLOAT16_BYTES if is_lower else FLOAT32_BYTES
    table, directions = parameters["softmax"], config.model.num_directions
    stage = config.deepspeed.zero_optimization.stage
    dense = float(sum(parameters.values()))
    share = (world - 1) / world
    negatives = targets = ids = 0.0
    if config.model.softmax.kind == "sampled":
        dense -= table
        width = config.model.lstm.projection_dim + 1
        slots = config.deepspeed.train_batch_size / world * config.data.unroll_steps
        num_negatives, num_targets = _distinct_rows(config, table // width, slots)
        negatives = 2 * share * num_negatives * width * value_bytes
        targets = (world - 1) * num_targets * width * value_bytes
        ids = (world - 1) * directions * slots * INT64_BYTES
    return Traffic(
        dense=SENT_GRADIENTS[stage] * share * dense * value_bytes,
        negatives=negatives,
        targets=targets,
        ids=ids,
        weights=GATHERED_WEIGHTS[stage] * share * dense * FLOAT32_BYTES,
        reports=(world - 1) * (directions + 2) * FLOAT64_BYTES,
    )


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
