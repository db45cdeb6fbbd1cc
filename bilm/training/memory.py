"""An estimate of the peak memory of a rank on a CPU, from the shapes of its tensors.

The memory of the libraries is measured by loading them, because it depends on their versions. The
files of the corpus are not included: they are mapped, and the system can reclaim their pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import psutil

from bilm.kernels.full_softmax import MAX_CHUNK_LOGITS
from bilm.model.config import LstmConfig, ModelConfig
from bilm.model.language_model import BiLm
from bilm.training.config import Config
from bilm.training.optimizers import STATE_NAMES

FLOAT32_BYTES = 4

# Blocks of different sizes leave gaps. Runs of 0.4 to 2.2 GB needed up to 1.12 times the sum.
GAPS = 1.07

VOCABULARY_WORD_BYTES = 190  # a Python string, and its entries in a tuple and a dict

DECODED_PREDICTION_BYTES, MAX_DECODED_BYTES = 16, 1 << 28  # bilm/corpus/predictions.py

LEXICON_TYPE_BYTES, MAX_LEXICON_TYPES = 100, 1 << 18  # bilm/corpus/lexicon.py


@dataclass(frozen=True)
class ModelSize:
    """The number of parameters of the softmax and of the rest, and the size of the vocabulary."""

    softmax: int
    others: int
    vocabulary: int


@dataclass(frozen=True)
class Memory:
    """The memory of a rank in bytes: what it always needs, and what it needs for a time."""

    libraries: float
    weights: float
    optimizer: float
    text: float
    step: float  # activations and gradients
    evaluation: float
    saving: float  # of rank 0, for the copies of a checkpoint, which exist from the first one on
    export: float  # of rank 0, for the best model

    @property
    def peak(self) -> float:
        """The largest amount at any time."""
        always = self.libraries + self.weights + self.optimizer + self.text
        return GAPS * (always + self.saving + max(self.step, self.evaluation, self.export))


def loaded_libraries_bytes() -> float:
    """Load what a run loads, and return the memory of this process.

    Some of it is loaded by DeepSpeed's engine, and by the first step.
    """
    import torch._dynamo

    import bilm.training.setup  # noqa: F401

    lstm = LstmConfig(dim=2, projection_dim=1, num_layers=1)
    config = ModelConfig(characters=None, lstm=lstm)
    model, zeros = BiLm(config, 3), torch.zeros(config.num_directions, 1, 1, dtype=torch.long)
    losses, _ = model(zeros[0, 0], zeros, zeros, model.zero_state(1))
    losses.sum().backward()
    return float(psutil.Process().memory_info().rss)


def estimate_memory(
    config: Config, size: ModelSize, predictions: int, world: int, libraries: float
) -> Memory:
    """Return the memory of a rank; `predictions` is the size of the training split."""
    all_parameters = size.softmax + size.others
    num_states = len(STATE_NAMES[config.train.optimizer.name])
    weights = all_parameters * stored_share(config, world, 3)
    is_sampled = config.model.softmax.kind == "sampled"
    optimizer = stored_states(config, size, world) * num_states
    dense = size.others + (0 if is_sampled else size.softmax)
    gradients = dense * stored_share(config, world, 2)
    # Gradients are copied to buffers in which ranks average them. Backward frees activations then.
    is_copied = world > 1 or config.deepspeed.zero_optimization.stage > 0
    step = gradients + max(dense * is_copied, _activations(config, size.vocabulary, world))
    rows = config.train.evaluation.rows / world
    slots = rows * config.data.unroll_steps * config.model.num_directions
    units = config.model.lstm.dim + config.model.lstm.projection_dim
    text = (
        size.vocabulary * VOCABULARY_WORD_BYTES
        + min(size.vocabulary, MAX_LEXICON_TYPES) * LEXICON_TYPE_BYTES
        + min(predictions * DECODED_PREDICTION_BYTES, MAX_DECODED_BYTES)
    )
    return Memory(
        libraries=libraries,
        weights=FLOAT32_BYTES * weights,
        optimizer=FLOAT32_BYTES * optimizer,
        text=text,
        step=FLOAT32_BYTES * step,
        evaluation=FLOAT32_BYTES
        * (full_softmax_values(slots, size.vocabulary) + 4 * slots * units),
        saving=FLOAT32_BYTES * all_parameters * (1 + num_states),
        export=FLOAT32_BYTES * all_parameters,
    )


def stored_states(config: Config, size: ModelSize, world: int) -> float:
    """Return the number of parameters of which a rank stores the optimizer state.

    The tables of a sampled softmax are not partitioned.
    """
    share = stored_share(config, world, 1)
    is_sampled = config.model.softmax.kind == "sampled"
    return size.others * share + size.softmax * (1.0 if is_sampled else share)


def stored_share(config: Config, world: int, from_stage: int) -> float:
    """Return the share that each rank stores of what ZeRO partitions from `from_stage` on."""
    return 1 / world if config.deepspeed.zero_optimization.stage >= from_stage else 1.0


def _activations(config: Config, vocabulary: int, world: int) -> float:
    """Return the number of values that one micro-batch keeps for backward, and needs in it."""
    model, lstm = config.model, config.model.lstm
    rows = config.deepspeed.train_batch_size / world / config.deepspeed.gradient_accumulation_steps
    words = rows * config.data.unroll_steps
    slots = words * model.num_directions
    # Per slot and layer: four gates, cell, output before the projection; and the input, the
    # dropped input, the joined input and recurrent vector, the output and the clipping mask.
    kept = slots * lstm.num_layers * (6 * lstm.dim + 6 * lstm.projection_dim)
    if model.characters is not None:
        # Maxima in float64, winners, sum, activation; gate, transform and output per highway.
        per_filter = 4.5 + 3 * model.characters.num_highway
        kept += distinct_words(words, vocabulary) * model.characters.num_filters * per_filter
    if model.softmax.kind == "sampled":
        return kept + slots * min(vocabulary, model.softmax.num_negatives)
    return kept + full_softmax_values(slots, vocabulary)


def full_softmax_values(slots: float, vocabulary: int) -> float:
    """Return the number of values that the full softmax needs at a time.

    They are the logits of a chunk, their exp, and a gap of the same size that smaller blocks leave;
    if there are several chunks, also the logits of the previous one.
    """
    logits = slots * vocabulary
    return 3 * logits if logits <= MAX_CHUNK_LOGITS else 4 * MAX_CHUNK_LOGITS


def distinct_words(words: float, vocabulary: int) -> float:
    """Return the expected number of distinct words among `words` words, by Zipf's law."""
    weights = 1 / np.arange(1, vocabulary + 1)
    return float((1 - np.exp(words * np.log1p(-weights / (weights.sum() + 1)))).sum())
