"""A close look at one optimiser step: update-to-weight ratios by module, and histograms.

Taken between backward and update, where weights and gradients stand side by side. Of a table with
sparse gradients only the touched rows are looked at. Costs a copy of those weights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bilm.corpus.batches import Batch
from bilm.corpus.reader import Corpus
from bilm.model.config import ModelConfig
from bilm.model.negatives import Negatives


def _seed_of(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _to(negatives: list[Negatives] | None, device: torch.device) -> list[Negatives] | None:
    if negatives is None:
        return None
    return [n._replace(ids=n.ids.to(device)) for n in negatives]


def batch_tensors(
    batch: Batch, corpus: Corpus, config: ModelConfig, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words, the word index and the targets of a batch as tensors."""
    directions = config.num_directions
    words = batch.char_ids if config.characters is not None else corpus.softmax_ids(batch.words)
    arrays = (words, batch.word_index[:directions], batch.targets[:directions])
    first, second, third = (torch.from_numpy(array).to(device).long() for array in arrays)
    return first, second, third


class StepInspector:
    """Holds a step's weights and gradients until the update is done."""

    def __init__(self, model: nn.Module) -> None:
        self._touched: dict[str, tuple[nn.Parameter, Tensor | None, Tensor]] = {}
        self.histograms: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            grad = parameter.grad
            if grad is None:
                continue
            rows = None
            if grad.is_sparse:
                coalesced = grad.coalesce()
                rows, grad = coalesced.indices()[0], coalesced.values()
            before = _rows_of(parameter, rows).clone()
            self._touched[name] = (parameter, rows, before)
            self.histograms[f"weights/{name}"] = before
            self.histograms[f"gradients/{name}"] = grad.clone()

    def update_ratios(self) -> dict[str, float]:
        """After the update: by module, the norm of the change over the norm of the weights."""
        changes: dict[str, list[Tensor]] = {}
        weights: dict[str, list[Tensor]] = {}
        for name, (parameter, rows, before) in self._touched.items():
            module = _module_of(name)
            changes.setdefault(module, []).append((_rows_of(parameter, rows) - before).norm())
            weights.setdefault(module, []).append(before.norm())
        return {
            module: float(torch.stack(changes[module]).norm() / torch.stack(weights[module]).norm())
            for module in changes
            if float(torch.stack(weights[module]).norm()) > 0
        }


def _rows_of(parameter: nn.Parameter, rows: Tensor | None) -> Tensor:
    return parameter.detach() if rows is None else parameter.detach()[rows]


def _module_of(name: str) -> str:
    """`bilstm.stacks.0.1.weight` -> `lstm_forward_1`; others by their first part."""
    parts = name.split(".")
    if parts[0] == "bilstm":
        return f"lstm_{('forward', 'backward')[int(parts[2])]}_{parts[3]}"
    return parts[0]
