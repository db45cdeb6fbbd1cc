"""Convert a batch to the model's input tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from bilm.corpus.batches import Batch
from bilm.corpus.reader import Corpus
from bilm.kernels.checks import check_ids
from bilm.model.config import ModelConfig
from bilm.text.characters import NUM_CHARACTERS
from bilm.text.vocabulary import IGNORED


def batch_tensors(
    batch: Batch, corpus: Corpus, config: ModelConfig, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words, word indices and targets of a batch, on `device`."""
    directions = config.num_directions
    words = batch.char_ids if config.characters is not None else corpus.softmax_ids(batch.words)
    arrays = (words, batch.word_index[:directions], batch.targets[:directions])
    on_host = [torch.from_numpy(array) for array in arrays]
    if device.type != "cpu":  # the operations themselves check ids on the CPU only
        num_words = corpus.vocabulary_size
        is_character = config.characters is not None
        check_ids("words", on_host[0], NUM_CHARACTERS if is_character else num_words)
        check_ids("word_index", on_host[1], len(words))
        check_ids("targets", on_host[2], num_words, minimum=IGNORED)
    first, second, third = (tensor.to(device).long() for tensor in on_host)
    return first, second, third
