"""The losses compared with PyTorch's cross entropy."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from bilm.kernels import full_softmax
from bilm.kernels.sampled_softmax import Candidates
from bilm.model.negatives import Negatives, draw_negatives, log_expected_count
from bilm.model.softmax import VocabularySoftmax

WORDS, DIM, VOCABULARY = 17, 6, 50


def losses_of(
    softmax: VocabularySoftmax,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    negatives: Negatives | None,
) -> torch.Tensor:
    """Return the losses of one direction."""
    sets = None if negatives is None else [negatives]
    losses = softmax(hidden.unsqueeze(0), targets.unsqueeze(0), sets)
    assert losses.shape == (1, len(targets))
    return losses[0]  # type: ignore[no-any-return]


def softmax_of() -> VocabularySoftmax:
    torch.manual_seed(0)
    softmax = VocabularySoftmax(VOCABULARY, DIM).double()
    with torch.no_grad():
        softmax.bias.normal_()
    return softmax


def case() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(WORDS, DIM, dtype=torch.double, requires_grad=True)
    return hidden, torch.randint(0, VOCABULARY, (WORDS,))


def plain(softmax: VocabularySoftmax, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = hidden @ softmax.weight.t() + softmax.bias.squeeze(1)
    return F.cross_entropy(logits, targets, reduction="none")


@pytest.mark.parametrize("chunk_logits", [1, 3 * WORDS, 1 << 20])
def test_chunked_full_softmax_equals_cross_entropy(
    chunk_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_softmax, "MAX_CHUNK_LOGITS", chunk_logits)
    softmax = softmax_of()
    hidden, targets = case()
    wanted = [hidden, softmax.weight, softmax.bias]
    weighting = torch.rand(WORDS, dtype=torch.double)
    expected = plain(softmax, hidden, targets)
    expected_grads = torch.autograd.grad((expected * weighting).sum(), wanted)
    losses = losses_of(softmax, hidden, targets, None)
    grads = torch.autograd.grad((losses * weighting).sum(), wanted)
    torch.testing.assert_close(losses, expected)
    for actual, expected_grad in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(actual, expected_grad)


def test_full_softmax_is_finite_for_huge_logits() -> None:
    softmax = softmax_of()
    with torch.no_grad():
        softmax.weight.mul_(1e4)
    losses = losses_of(softmax, *case(), None)
    assert torch.isfinite(losses).all()


def test_sampling_all_words_equals_full_softmax(backend: str) -> None:
    softmax = softmax_of()
    hidden, targets = case()
    negatives = draw_negatives(VOCABULARY, VOCABULARY, (0,))
    sampled = losses_of(softmax, hidden, targets, negatives)
    torch.testing.assert_close(sampled, plain(softmax, hidden, targets))
    wanted = [hidden, softmax.weight, softmax.bias]
    full_grads = torch.autograd.grad(plain(softmax, hidden, targets).sum(), wanted)
    for actual, expected_grad in zip(
        torch.autograd.grad(sampled.sum(), wanted), full_grads, strict=True
    ):
        torch.testing.assert_close(actual.to_dense(), expected_grad)


def test_sampled_gradients_contain_only_their_rows(backend: str) -> None:
    softmax = softmax_of()
    hidden, targets = case()
    negatives = draw_negatives(5, VOCABULARY, (0,))
    losses_of(softmax, hidden, targets, negatives).sum().backward()
    for parameter in softmax.parameters():
        assert parameter.grad is not None
        assert parameter.grad.is_sparse
        rows = set(parameter.grad.coalesce().indices()[0].tolist())
        assert rows == set(targets.tolist()) | set(negatives.ids.tolist())


def test_accidental_hits_are_masked(backend: str) -> None:
    softmax = softmax_of()
    hidden, _ = case()
    targets = torch.full((WORDS,), 3)
    candidates = Candidates(targets.unsqueeze(0), torch.zeros(1, WORDS))
    losses = [
        softmax.sampled_loss(
            hidden.unsqueeze(0),
            candidates,
            Candidates(torch.tensor([ids]), torch.zeros(1, len(ids))),
        )
        for ids in ([3, 7], [7])
    ]
    torch.testing.assert_close(losses[0], losses[1])


@pytest.mark.parametrize("sampled", [True, False])
def test_ignored_targets_have_no_loss(backend: str, sampled: bool) -> None:
    softmax = softmax_of()
    hidden, targets = case()
    negatives = draw_negatives(5, VOCABULARY, (0,)) if sampled else None
    all_losses = losses_of(softmax, hidden, targets, negatives)
    some = targets.clone()
    some[::2] = -1
    losses = losses_of(softmax, hidden, some, negatives)
    assert not losses[::2].any()
    torch.testing.assert_close(losses[1::2], all_losses[1::2])
    (grad,) = torch.autograd.grad(losses.sum(), hidden)
    assert not grad[::2].any()
    assert grad[1::2].any(dim=1).all()


@pytest.mark.parametrize("num_sets", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_several_directions_equal_each_direction_alone(
    backend: str, num_sets: int, dtype: torch.dtype
) -> None:
    softmax = softmax_of().to(dtype)
    torch.manual_seed(3)
    hidden = torch.randn(2, WORDS, DIM, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, VOCABULARY, (2, WORDS))
    targets[1, 4] = -1
    sets = [draw_negatives(12, VOCABULARY, (number,)) for number in range(num_sets)]
    weighting = torch.rand(2, WORDS, dtype=dtype)
    wanted = [hidden, softmax.weight, softmax.bias]
    together = softmax(hidden, targets, sets)
    grads = torch.autograd.grad((together * weighting).sum(), wanted)
    expected = torch.stack(
        [reference(softmax, hidden[d], targets[d], sets[d % num_sets]) for d in range(2)]
    )
    expected_grads = torch.autograd.grad((expected * weighting).sum(), wanted)
    torch.testing.assert_close(together, expected)
    for actual, expected_grad in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(actual.to_dense(), expected_grad)


def reference(
    softmax: VocabularySoftmax, hidden: torch.Tensor, targets: torch.Tensor, negatives: Negatives
) -> torch.Tensor:
    """Compute the sampled loss from its definition, with PyTorch's cross entropy."""
    real, size = targets.clamp(min=0), VOCABULARY
    counts = [log_expected_count(ids, negatives.num_tries, size) for ids in (real, negatives.ids)]
    true = (hidden * softmax.weight[real]).sum(dim=1) + softmax.bias[real, 0] - counts[0]
    sampled = hidden @ softmax.weight[negatives.ids].t() + softmax.bias[negatives.ids, 0]
    sampled = (sampled - counts[1]).masked_fill(negatives.ids == real.unsqueeze(1), -torch.inf)
    logits = torch.cat([true.unsqueeze(1), sampled], dim=1)
    losses = F.cross_entropy(logits, torch.zeros_like(real), reduction="none")
    return losses.masked_fill(targets == -1, 0.0).to(hidden.dtype)


def test_initial_weights_have_expected_scale() -> None:
    torch.manual_seed(0)
    softmax = VocabularySoftmax(2000, 512)
    assert softmax.weight.std().item() == pytest.approx(1 / math.sqrt(512), rel=0.01)
    assert not softmax.bias.any()
