from __future__ import annotations

import pytest
import torch
from torch import nn

from bilm.distributed.table_updates import dense_weights, sparse_tables
from bilm.model.config import LstmConfig, ModelConfig
from bilm.model.language_model import BiLm

WORDS = 7


def build(**softmax: object) -> BiLm:
    lstm = LstmConfig(dim=4, projection_dim=2, num_layers=3)
    return BiLm(ModelConfig.model_validate({"characters": None, "lstm": lstm, **softmax}), WORDS)


def finished_lstms(model: BiLm) -> list[tuple[int, int]]:
    """Return the directions and layers in the order in which backward completes their gradients."""
    order: list[tuple[int, int]] = []
    for direction in range(2):
        for layer in range(3):
            weight = model.bilstm.lstm(direction, layer).weight
            weight.register_post_accumulate_grad_hook(
                lambda _, own=(direction, layer): order.append(own)
            )
    ids = torch.zeros(2, 1, 2, dtype=torch.long)
    losses, _ = model(torch.arange(WORDS), ids, ids, model.zero_state(1))
    losses.sum().backward()
    return order


def test_dense_weights_are_in_order_of_forward_pass() -> None:
    model = build(softmax={"kind": "full"})
    order = finished_lstms(model)
    positions = {id(weight): place for place, weight in enumerate(dense_weights(model))}
    # The C code completes the gradients of both directions of a layer together.
    assert [layer for _, layer in order] == [2, 2, 1, 1, 0, 0]
    order.sort(key=lambda own: positions[id(model.bilstm.lstm(*own).weight)])
    assert [layer for _, layer in order] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_lists_each_weight_once(kind: str) -> None:
    model = build(softmax={"kind": kind, "num_negatives": 3})
    listed: list[nn.Parameter] = [*dense_weights(model), *sparse_tables(model)]
    assert sorted(map(id, listed)) == sorted(map(id, model.parameters()))
