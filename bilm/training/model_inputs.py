"""Convert a batch to the model's input tensors.

The loader's threads do this for training. Everything whose size depends on the data is computed
there, on the host, and the ids are checked there, so that a step on an accelerator does not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bilm.corpus.batches import Batch
from bilm.corpus.reader import Corpus
from bilm.distributed.row_exchange import RowPlan, plan_rows
from bilm.kernels.checks import check_ids
from bilm.model.config import ModelConfig
from bilm.model.devices import copy_to_device
from bilm.text.characters import NUM_CHARACTERS
from bilm.text.vocabulary import IGNORED
from bilm.training.input_copies import InputCopies, StartedCopies
from bilm.training.step_inputs import MicroBatch, StepInputs

if TYPE_CHECKING:
    from bilm.training.run_parts import RunParts


def batch_tensors(
    batch: Batch, corpus: Corpus, config: ModelConfig, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words, word indices and targets of a batch, on `device`."""
    words, word_index, targets = (
        copy_to_device(tensor, device) for tensor in _host_tensors(batch, corpus, config, device)
    )
    return words, word_index, targets


def _host_tensors(
    batch: Batch, corpus: Corpus, config: ModelConfig, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words, word indices and targets of a batch on the host, checked for `device`."""
    directions = config.num_directions
    words = batch.char_ids if config.characters is not None else corpus.softmax_ids(batch.words)
    arrays = (words, batch.word_index[:directions], batch.targets[:directions])
    first, second, third = (torch.from_numpy(array).long() for array in arrays)
    if device.type != "cpu":  # the operations themselves check ids on the CPU only
        num_words = corpus.vocabulary_size
        is_character = config.characters is not None
        check_ids("words", first, NUM_CHARACTERS if is_character else num_words)
        check_ids("word_index", second, len(first))
        check_ids("targets", third, num_words, minimum=IGNORED)
    return first, second, third


def prepare_batch(parts: RunParts, batch: Batch) -> MicroBatch:
    """Convert a batch, with its negatives, to tensors on the host: in pinned memory for CUDA."""
    model, device = parts.engine.model, parts.ranks.device
    words, word_index, targets = _host_tensors(batch, parts.corpus, model.config, device)
    sampled = model.prepare_targets(targets, (parts.config.train.seed, batch.step))
    inputs = MicroBatch(batch.micro, batch.num_predictions, words, word_index, targets, sampled)
    return inputs.map(Tensor.pin_memory) if device.type == "cuda" else inputs


def read_inputs(parts: RunParts, start: int) -> Generator[StepInputs, None, None]:
    """Yield the inputs of each step from `start` on, on the device of this rank.

    On an accelerator, the copies of the next step start before a step is returned.
    """
    stop, workers = max(start, parts.num_steps), parts.config.data.num_workers
    copies, num_ahead = InputCopies(parts.ranks.device), int(parts.ranks.device.type != "cpu")
    batches = parts.stream.read_as(lambda batch: prepare_batch(parts, batch), start, stop, workers)
    ahead: deque[StartedCopies] = deque()
    try:
        for _ in range(start, stop):
            inputs = tuple(next(batches) for _ in range(parts.stream.accumulation))
            ahead.append(copies.start(StepInputs(inputs, _plan_rows(parts, inputs))))
            if len(ahead) > num_ahead:
                yield copies.finish(ahead.popleft())
        yield from map(copies.finish, ahead)
    finally:
        batches.close()


def _plan_rows(parts: RunParts, batches: tuple[MicroBatch, ...]) -> RowPlan | None:
    """Plan the exchange of sparse gradients; ranks exchange the ids of their targets."""
    sampled = [batch.sampled for batch in batches if batch.sampled is not None]
    if not sampled or parts.ranks.world == 1:
        return None
    num_targets = sum(each.targets.ids.numel() for each in sampled)
    return plan_rows(sampled, num_targets, parts.ranks.gather_on_host)
