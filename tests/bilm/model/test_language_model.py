from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels.dropout import DropoutSeed, dropout
from bilm.model.language_model import BiLm, training_objective
from bilm.text.characters import char_ids
from tests.conftest import tiny_model_config

VOCABULARY, ROWS, TIME = 40, 3, 5


def batch(model: BiLm) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    directions = model.config.num_directions
    if model.config.characters is not None:
        words = torch.from_numpy(char_ids([f"word{i}" for i in range(11)])).long()
    else:
        words = torch.randperm(VOCABULARY)[:11]
    inverse = torch.randint(0, 11, (directions, ROWS, TIME))
    targets = torch.randint(0, VOCABULARY, (directions, ROWS, TIME))
    return words, inverse, targets


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bidirectional": False},
        {"characters": None},
        {"characters": None, "softmax": {"tied_to_input": True}},
        {"lstm": {"dim": 6, "projection_dim": 6, "num_layers": 3}},
        {"lstm": {"skip_connections": False, "num_layers": 1}},
        {"softmax": {"kind": "full"}},
        {"softmax": {"shared_negatives": True}},
        {"characters": {"num_highway": 0, "activation": "tanh", "filters": [[2, 6]]}},
    ],
)
def test_every_option_trains_every_weight(changes: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(**changes), VOCABULARY).train()
    negatives = model.draw_negatives((0, 0))
    sums, state = model(*batch(model), model.zero_state(ROWS), negatives)
    assert sums.shape == (model.config.num_directions,)
    training_objective(sums, ROWS).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.to_dense().abs().sum() > 0, name
    assert state.cell.shape == (*state.cell.shape[:2], ROWS, model.config.lstm.dim)


def test_tied_weights_are_one_parameter() -> None:
    config = tiny_model_config(characters=None, softmax={"tied_to_input": True})
    model = BiLm(config, VOCABULARY)
    assert model.softmax is not None
    assert model.softmax.weight is model.encoder.weight
    assert sum(p.shape == (VOCABULARY, 6) for p in model.parameters()) == 1


def test_directions_draw_separate_negatives_unless_shared() -> None:
    model = BiLm(tiny_model_config(), VOCABULARY)
    forward, backward = model.draw_negatives((0, 0)) or []
    assert not torch.equal(forward.ids, backward.ids)
    shared = BiLm(tiny_model_config(softmax={"shared_negatives": True}), VOCABULARY)
    assert len(shared.draw_negatives((0, 0)) or []) == 1
    assert (
        BiLm(tiny_model_config(softmax={"kind": "full"}), VOCABULARY).draw_negatives((0,)) is None
    )


def test_applies_dropout_before_the_softmax() -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(dropout=0.3, lstm={"num_layers": 1}), VOCABULARY).train()
    words, inverse, targets = batch(model)
    state = model.zero_state(ROWS)
    seed = DropoutSeed(9, step=2, first_row=4)
    sums, _ = model(words, inverse, targets, state, dropout_seed=seed)
    layers, _ = model.layers(words, inverse, state, dropout_seed=seed)
    softmax = model.softmax
    assert softmax is not None
    for direction in range(2):
        dropped = dropout(layers[direction][-1], 0.3, seed, layer=1, direction=direction)
        top = dropped.flatten(0, 1).unsqueeze(0)
        expected = softmax(top, targets[direction].t().flatten().unsqueeze(0), None).sum()
        torch.testing.assert_close(sums[direction], expected)


def test_objective_is_mean_loss_times_time_steps() -> None:
    sums = torch.tensor([30.0, 60.0])
    mean_loss = 0.5 * (30.0 / (ROWS * TIME) + 60.0 / (ROWS * TIME))
    assert training_objective(sums, ROWS).item() == pytest.approx(mean_loss * TIME)


def test_model_without_vocabulary_has_no_loss() -> None:
    model = BiLm(tiny_model_config(), None)
    assert model.softmax is None
    words, inverse, targets = batch(model)
    with pytest.raises(ValueError, match="no softmax"):
        model(words, inverse, targets, model.zero_state(ROWS))
    with pytest.raises(ValueError, match="vocabulary_size is None"):
        BiLm(tiny_model_config(characters=None), None)


@pytest.mark.parametrize("tied", [False, True])
def test_without_softmax_shares_all_other_weights(tied: bool) -> None:
    changes = {"characters": None, "softmax": {"tied_to_input": True}} if tied else {}
    model = BiLm(tiny_model_config(**changes), VOCABULARY).eval()
    generator_state = torch.get_rng_state()
    bare = model.without_softmax()
    assert torch.equal(generator_state, torch.get_rng_state())
    assert bare.softmax is None
    assert model.softmax is not None
    assert not any(module.training for module in bare.modules())
    assert bare.vocabulary_size == VOCABULARY
    own, expected = dict(bare.named_parameters()), dict(model.encoder_parameters())
    assert own.keys() == expected.keys()
    assert all(own[name] is expected[name] for name in own)


def test_parameters_belong_to_encoder_or_softmax() -> None:
    model = BiLm(tiny_model_config(), VOCABULARY)
    assert [name for name, _ in model.softmax_parameters()] == ["softmax.weight", "softmax.bias"]
    parts = dict(model.encoder_parameters()) | dict(model.softmax_parameters())
    assert parts.keys() == dict(model.named_parameters()).keys()
    tied = tiny_model_config(characters=None, softmax={"tied_to_input": True})
    model = BiLm(tied, VOCABULARY)
    assert [name for name, _ in model.softmax_parameters()] == ["softmax.bias"]
    assert "encoder.weight" in dict(model.encoder_parameters())
