"""The stacks: skip connections, and where dropout is applied."""

from __future__ import annotations

import pytest
import torch

from bilm.kernels.dropout import DropoutSeed, dropout
from bilm.kernels.lstm_types import LayerState
from bilm.model.bilstm import BiLstm, BiLstmState
from bilm.model.config import LstmConfig

TIME, ROWS, DIM = 7, 3, 4
SEED = DropoutSeed(5, step=8, first_row=2)


def bilstm_of(dropout: float = 0.0, directions: int = 2, **changes: object) -> BiLstm:
    fields = {"dim": 6, "projection_dim": DIM, "num_layers": 3}
    torch.manual_seed(0)
    return BiLstm(LstmConfig.model_validate({**fields, **changes}), directions, dropout).double()


def inputs(directions: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(TIME, ROWS, DIM, dtype=torch.double) for _ in range(directions)]


def random_state(bilstm: BiLstm) -> BiLstmState:
    torch.manual_seed(2)
    return BiLstmState(*(torch.randn_like(part) for part in bilstm.zero_state(ROWS)))


@pytest.mark.parametrize("skip", [True, False])
def test_skip_from_second_layer_on_affects_only_the_output(skip: bool) -> None:
    bilstm = bilstm_of(skip_connections=skip)
    state, xs = random_state(bilstm), inputs()
    outputs, after = bilstm(xs, state)
    for d in range(2):
        x = xs[d]
        for layer in range(3):
            lstm = bilstm.lstm(d, layer)
            y, (c, h) = lstm(x, LayerState(state.cell[d, layer], state.hidden[d, layer]))
            x = y + x if skip and layer > 0 else y
            torch.testing.assert_close(outputs[d][layer], x)
            torch.testing.assert_close(after.cell[d, layer], c)
            torch.testing.assert_close(after.hidden[d, layer], h)  # before the sum


def test_sum_of_skip_is_not_clipped() -> None:
    bilstm = bilstm_of(projection_clip=0.01)
    outputs, after = bilstm(inputs(), random_state(bilstm))
    assert after.hidden.abs().max() <= 0.01
    assert outputs[0][2].abs().max() > 0.011


def test_applies_dropout_to_layer_inputs_and_skip() -> None:
    bilstm = bilstm_of(dropout=0.4).train()
    state, xs = random_state(bilstm), inputs()
    outputs, after = bilstm(xs, state, dropout_seed=SEED)
    undropped_skips = []
    for d in range(2):
        x = xs[d]
        for layer in range(3):
            dropped = dropout(x, 0.4, SEED, layer, d)
            lstm = bilstm.lstm(d, layer)
            # The layer itself has no dropout, so its recurrence has none.
            before = LayerState(state.cell[d, layer], state.hidden[d, layer])
            y, (_, h) = lstm(dropped, before)
            undropped_skips.append(y + x)
            x = y + dropped if layer > 0 else y
            assert torch.equal(outputs[d][layer], x)
            assert torch.equal(after.hidden[d, layer], h)
    assert not torch.allclose(outputs[0][1], undropped_skips[1])
    assert not torch.allclose(outputs[1][2], undropped_skips[5])


def test_each_time_step_has_a_new_mask() -> None:
    bilstm = bilstm_of(dropout=0.5, num_layers=2, directions=1).train()
    with torch.no_grad():
        for parameter in bilstm.parameters():
            parameter.zero_()
        # The first layer outputs the same non-zero vector at each step; the second adds nothing,
        # so the result is the first layer's output after dropout.
        first = bilstm.lstm(0, 0)
        first.bias.fill_(30.0)
        assert first.projection is not None
        first.projection.fill_(1.0)
    outputs, _ = bilstm(inputs(1), bilstm.zero_state(ROWS))
    kept = outputs[0][1] != 0
    assert 0.3 < kept.double().mean() < 0.7
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[:, 0], kept[:, 1])


def test_applies_no_dropout_in_evaluation() -> None:
    bilstm = bilstm_of(dropout=0.5).eval()
    state, xs = bilstm.zero_state(ROWS), inputs()
    expected = bilstm_of().train()(xs, state)[0][0][2]
    generator_state = torch.get_rng_state()
    assert torch.equal(bilstm(xs, state)[0][0][2], expected)
    assert torch.equal(bilstm(xs, state, dropout_seed=SEED)[0][0][2], expected)
    assert torch.equal(torch.get_rng_state(), generator_state)  # no seed was drawn


def test_draws_a_seed_that_is_not_given() -> None:
    bilstm = bilstm_of(dropout=0.5).train()
    state, xs = bilstm.zero_state(ROWS), inputs()
    torch.manual_seed(7)
    first, second = bilstm(xs, state)[0][0][2], bilstm(xs, state)[0][0][2]
    assert not torch.equal(first, second)
    torch.manual_seed(7)
    assert torch.equal(bilstm(xs, state)[0][0][2], first)


def test_masks_belong_to_rows_of_the_global_batch() -> None:
    bilstm = bilstm_of(dropout=0.5).train()
    state, xs = random_state(bilstm), inputs()
    outputs, _ = bilstm(xs, state, dropout_seed=SEED)
    seed = SEED._replace(first_row=SEED.first_row + 1)
    last, _ = bilstm([x[:, 1:] for x in xs], state.rows(1, ROWS), dropout_seed=seed)
    for d in range(2):
        torch.testing.assert_close(last[d][2], outputs[d][2][:, 1:])


@pytest.mark.parametrize(
    ("directions", "layers", "rows", "dim", "name"),
    [
        (1, 3, ROWS, 6, "state.cell"),
        (2, 4, ROWS, 6, "state.cell"),
        (2, 3, ROWS, 5, "state.cell"),
        (2, 3, ROWS + 1, 6, "cell"),
    ],
)
def test_rejects_state_of_wrong_shape(
    directions: int, layers: int, rows: int, dim: int, name: str
) -> None:
    bilstm = bilstm_of()
    shape = (directions, layers, rows)
    state = BiLstmState(torch.zeros(*shape, dim).double(), torch.zeros(*shape, DIM).double())
    with pytest.raises(ValueError, match=f"{name} has the shape"):
        bilstm(inputs(), state)


def test_rejects_wrong_number_of_inputs() -> None:
    bilstm = bilstm_of()
    with pytest.raises(ValueError, match="there are 1 inputs; there must be 2"):
        bilstm(inputs(1), bilstm.zero_state(ROWS))


def test_directions_share_no_weights() -> None:
    bilstm = bilstm_of()
    outputs, _ = bilstm(inputs(), bilstm.zero_state(ROWS))
    outputs[0][2].sum().backward()
    assert all(p.grad is not None for p in bilstm.stacks[0].parameters())
    assert not any(p.grad is not None and p.grad.any() for p in bilstm.stacks[1].parameters())
