"""The trainable biLM of `Elmo`, and the learning rates of its layers."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from bilm.model.language_model import BiLm
from bilm.model.token_encoder import WordEmbedding


def trainable_bilm(bilm: BiLm, is_copied: bool) -> BiLm:
    """Return the biLM with trainable weights, in training mode."""
    if is_copied:
        bilm = copy.deepcopy(bilm)
    if isinstance(bilm.encoder, WordEmbedding):
        bilm.encoder.sparse = False  # Adam and others reject sparse gradients
    return bilm.requires_grad_(True).train()


def layer_groups(bilm: BiLm, learning_rate: float, decay: float) -> list[dict[str, Any]]:
    """Return groups for an optimizer: the rate of a layer is `decay` times that of the one above.

    The top LSTM layer has `decay * learning_rate`, and the token encoder the lowest rate.
    """
    parts: list[tuple[str, list[nn.Parameter]]] = []
    directions = range(bilm.config.num_directions)
    for layer in reversed(range(bilm.config.lstm.num_layers)):
        lstms = [bilm.bilstm.lstm(direction, layer) for direction in directions]
        weights = [weight for lstm in lstms for weight in lstm.parameters()]
        parts.append((f"lstm layer {layer}", weights))
    parts.append(("token encoder", list(bilm.encoder.parameters())))
    return [
        {"name": name, "params": weights, "lr": learning_rate * decay**depth}
        for depth, (name, weights) in enumerate(parts, start=1)
    ]
