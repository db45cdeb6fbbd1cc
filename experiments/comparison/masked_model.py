"""The masked LM: its settings, its loss, and its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bilm.errors import CheckpointError
from experiments.comparison.masking import masked
from experiments.comparison.pieces import ROW_PIECES, SPECIALS, Pieces, Rows

HEAD_DIM = 64

WEIGHT_DECAY = 0.01


@dataclass(frozen=True)
class Settings:
    """The settings of a masked LM and of its training."""

    hidden_dim: int = 256
    num_layers: int = 6
    learning_rate: float = 1e-3
    rows: int = 32  # of the batch
    dropout: float = 0.1
    warmup_share: float = 0.06
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    pooling: Literal["mean", "first"] = "mean"  # of the pieces of a word; not used in training
    seed: int = 0


def new_model(settings: Settings, size: int) -> Any:
    """Return a `BertForMaskedLM` with random weights."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(settings.seed)
    config = BertConfig(
        vocab_size=size,
        hidden_size=settings.hidden_dim,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=max(1, settings.hidden_dim // HEAD_DIM),
        intermediate_size=4 * settings.hidden_dim,
        max_position_embeddings=ROW_PIECES,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        type_vocab_size=1,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return BertForMaskedLM(config)


def open_model(directory: Path) -> Any:
    """Read the model that `save_pretrained` wrote."""
    from transformers import BertForMaskedLM

    if not (directory / "config.json").is_file():
        raise CheckpointError(f"{directory} has no config.json; train the masked LM first")
    model = BertForMaskedLM.from_pretrained(str(directory), local_files_only=True)
    return model.eval()


def loss_of(model: Any, rows: Rows, pieces: Pieces, seed: tuple[int, ...]) -> Tensor:
    """Return the mean loss per masked piece; `seed` determines the masks.

    The softmax is computed for the masked pieces only, which saves most of its time.
    """
    ids = rows.astype(np.int64)
    generator = np.random.default_rng(seed)
    inputs, is_predicted = masked(ids, generator, pieces.size, len(SPECIALS), pieces.mask)
    hidden = model.bert(input_ids=torch.from_numpy(inputs)).last_hidden_state
    logits = model.cls(hidden[torch.from_numpy(is_predicted)])  # (predicted, vocabulary)
    return F.cross_entropy(logits.float(), torch.from_numpy(ids[is_predicted]))


def new_optimizer(model: Any, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW with BERT's constants; biases and layer norms have no weight decay."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.999), eps=1e-6)


def learning_rate_share(step: int, steps: int, warmup_share: float) -> float:
    """Return the share of the learning rate at a step: linear warm-up, then linear decay to 0."""
    warmup = max(1, round(warmup_share * steps))
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def tensors_of(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights and the optimizer's state by name, for a checkpoint."""
    tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = value
    return tensors


def load_tensors(model: Any, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what `tensors_of` returned."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
            optimizer.state[parameter] = dict(_state(name, tensors))


def _state(name: str, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for key in ("step", "exp_avg", "exp_avg_sq"):
        yield key, tensors[f"optimizer.{key}.{name}"].clone()


def num_parameters(model: Any) -> int:
    """Return the number of weights; tied weights count once."""
    return sum(p.numel() for p in model.parameters())


def settings_json(settings: Settings) -> dict[str, Any]:
    """Return plain values for a JSON file."""
    return dataclasses.asdict(settings)
