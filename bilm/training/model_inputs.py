"""Convert a batch to the model's input tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from bilm.corpus.batches import Batch
from bilm.corpus.reader import Corpus
from bilm.model.config import ModelConfig


def batch_tensors(
    batch: Batch, corpus: Corpus, config: ModelConfig, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words, word indices and targets of a batch, on `device`."""
    directions = config.num_directions
    words = batch.char_ids if config.characters is not None else corpus.softmax_ids(batch.words)
    arrays = (words, batch.word_index[:directions], batch.targets[:directions])
    first, second, third = (torch.from_numpy(array).to(device).long() for array in arrays)
    return first, second, third
