"""Wrong arguments: both backends raise the same error, before any C code runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels.char_cnn import filter_maxima
from bilm.kernels.full_softmax import full_loss
from bilm.kernels.lstm_types import LayerState
from bilm.kernels.sampled_softmax import add_rows
from bilm.kernels.sparse_rows import Rows, adagrad_rows
from bilm.model.config import LstmConfig
from bilm.model.language_model import BiLm
from bilm.model.projected_lstm import ProjectedLstm
from bilm.model.softmax import VocabularySoftmax
from bilm.model.token_encoder import Highway, WordEmbedding
from bilm.text.characters import char_ids
from tests.conftest import tiny_model_config

pytestmark = pytest.mark.usefixtures("backend")


def model() -> BiLm:
    return BiLm(tiny_model_config(), 10)


def ids_of_words() -> Tensor:
    return torch.from_numpy(char_ids(["a", "bank"])).long()


@pytest.mark.parametrize(("shift", "wrong"), [(1, "261"), (-261, "-1"), (1 << 16, "65796")])
def test_rejects_character_ids_outside_the_table(shift: int, wrong: str) -> None:
    """The ids of AllenNLP and bilm-tf are greater by 1."""
    ids = ids_of_words()
    ids[ids == 260] += shift
    message = f"^char_ids contains {wrong}; all must be from 0 to 260. Use .* subtract 1"
    with pytest.raises(IndexError, match=message):
        model().encoder(ids)
    state = model().zero_state(1)
    with pytest.raises(IndexError, match=message):
        model().layers(ids, torch.zeros(2, 1, 1, dtype=torch.long), state)


def test_rejects_words_narrower_than_a_filter() -> None:
    with pytest.raises(ValueError, match="at least 3 characters, the width of filter 2"):
        model().encoder(ids_of_words()[:, :2])


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_rejects_character_ids_of_wrong_type(kind: torch.dtype) -> None:
    with pytest.raises(TypeError, match="char_ids is a tensor of"):
        model().encoder(ids_of_words().to(kind))


def test_rejects_filters_that_do_not_fit() -> None:
    ids, embedding = torch.zeros(2, 4, dtype=torch.long), torch.randn(5, 3)
    with pytest.raises(ValueError, match=r"filter 0 has the shape \(2, 4, 1\)"):
        filter_maxima(ids, embedding, [torch.randn(2, 4, 1)])
    with pytest.raises(ValueError, match="the count of filter 1 is 0; it must be at least 1"):
        filter_maxima(ids, embedding, [torch.randn(2, 3, 1), torch.randn(0, 3, 1)])
    with pytest.raises(TypeError, match=r"filter 0 is a tensor of torch\.float64"):
        filter_maxima(ids, embedding, [torch.randn(2, 3, 1).double()])


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 3), (2,)])
def test_highway_rejects_wrong_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="has the shape"):
        Highway(2)(torch.ones(shape))


def test_highway_rejects_other_float_type() -> None:
    with pytest.raises(TypeError, match=r"x is a tensor of torch\.float64 on cpu; it must be"):
        Highway(2)(torch.ones(2, 2).double())


LENGTHS = [
    (torch.tensor([3, 2]), ValueError, r"lengths has the shape \(2,\); it must be \(3,\)"),
    (torch.tensor([5, 2, 1]), ValueError, r"\[5, 2, 1\]; all must be from 0 to 4"),
    (torch.tensor([4, 2, -1]), ValueError, r"\[4, 2, -1\]; all must be from 0 to 4"),
    (torch.tensor([4, 2, float("nan")]), TypeError, "lengths is a tensor of"),
    ([4, 2, 1], TypeError, "lengths is a list"),
]


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize(("lengths", "error", "message"), LENGTHS)
def test_lstm_rejects_wrong_lengths(
    lengths: Tensor, error: type[Exception], message: str, needs_gradient: bool
) -> None:
    lstm = ProjectedLstm(LstmConfig(dim=6, projection_dim=2, num_layers=1))
    state = LayerState(torch.zeros(3, 6), torch.zeros(3, 2))
    with torch.set_grad_enabled(needs_gradient), pytest.raises(error, match=message):
        lstm(torch.ones(4, 3, 2), state, lengths)


@pytest.mark.parametrize(
    ("inputs", "cell", "hidden"),
    [
        ((4, 3, 1), (3, 6), (3, 2)),
        ((0, 3, 2), (3, 6), (3, 2)),
        ((3, 2), (3, 6), (3, 2)),
        ((4, 3, 2), (2, 6), (3, 2)),
        ((4, 3, 2), (3, 6), (3, 6)),
    ],
)
def test_lstm_rejects_wrong_shapes(
    inputs: tuple[int, ...], cell: tuple[int, ...], hidden: tuple[int, ...]
) -> None:
    lstm = ProjectedLstm(LstmConfig(dim=6, projection_dim=2, num_layers=1))
    with pytest.raises(ValueError, match="it must be"):
        lstm(torch.ones(inputs), LayerState(torch.zeros(cell), torch.zeros(hidden)))


def test_rejects_word_ids_and_targets_outside_the_vocabulary() -> None:
    with pytest.raises(IndexError, match="word_ids contains 10; all must be from 0 to 9"):
        WordEmbedding(10, 4, sparse=True)(torch.tensor([3, 10]))
    softmax = VocabularySoftmax(10, 4)
    for target in (10, -2):
        with pytest.raises(IndexError, match=f"targets contains {target}; all must be from -1"):
            softmax(torch.ones(1, 1, 4), torch.tensor([[target]]), None)
    with pytest.raises(IndexError, match="targets contains -1; all must be from 0 to 9"):
        full_loss(torch.ones(1, 4), softmax.weight, softmax.bias, torch.tensor([-1]))
    with pytest.raises(IndexError, match="inverse contains 2; all must be from 0 to 1"):
        model().layers(ids_of_words(), torch.full((2, 1, 1), 2), model().zero_state(1))


def test_row_updates_reject_wrong_rows() -> None:
    table, sums = torch.zeros(3, 2), torch.ones(3, 2)
    for ids, message in (([0, 3], "ids contains 3"), ([-1, 0], "ids contains -1")):
        with pytest.raises(IndexError, match=message):
            adagrad_rows(table, sums, Rows(torch.tensor(ids), torch.ones(2, 2)), 0.1, 0.0)
        with pytest.raises(IndexError, match="places contains"):
            add_rows(table, torch.tensor(ids), torch.ones(2, 2), torch.ones(2))
    with pytest.raises(ValueError, match="ids contains a row twice"):
        adagrad_rows(table, sums, Rows(torch.tensor([1, 1]), torch.ones(2, 2)), 0.1, 0.0)
    assert not table.any()


def test_rejects_second_derivatives() -> None:
    """They would be wrong, since C code is not recorded."""
    hidden = torch.randn(3, 4, requires_grad=True)
    loss = full_loss(hidden, torch.randn(5, 4), torch.randn(5, 1), torch.tensor([0, 1, 2])).sum()
    with pytest.raises(RuntimeError, match="second derivatives of this operation"):
        torch.autograd.grad(loss, hidden, create_graph=True)
