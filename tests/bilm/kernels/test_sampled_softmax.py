from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bilm.kernels import c_library as native
from bilm.kernels import full_softmax
from bilm.model.negatives import Negatives, draw_negatives, log_expected_count, log_uniform
from bilm.model.softmax import SampledSoftmax

WORDS, DIM, VOCABULARY = 17, 6, 50


@pytest.fixture(params=["kernels", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    return str(request.param)


def losses_of(
    softmax: SampledSoftmax,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    negatives: Negatives | None,
) -> torch.Tensor:
    """The losses of one direction."""
    sets = None if negatives is None else [negatives]
    losses = softmax(hidden.unsqueeze(0), targets.unsqueeze(0), sets)
    assert losses.shape == (1, len(targets))
    return losses[0]  # type: ignore[no-any-return]


def softmax_of() -> SampledSoftmax:
    torch.manual_seed(0)
    softmax = SampledSoftmax(VOCABULARY, DIM).double()
    with torch.no_grad():
        softmax.bias.normal_()
    return softmax


def case() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(WORDS, DIM, dtype=torch.double, requires_grad=True)
    return hidden, torch.randint(0, VOCABULARY, (WORDS,))


def plain(softmax: SampledSoftmax, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = hidden @ softmax.weight.t() + softmax.bias.squeeze(1)
    return F.cross_entropy(logits, targets, reduction="none")


@pytest.mark.parametrize("chunk_logits", [1, 3 * WORDS, 1 << 20])
def test_full_softmax_in_chunks(chunk_logits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_softmax, "CHUNK_LOGITS", chunk_logits)
    softmax = softmax_of()
    hidden, targets = case()
    wanted = [hidden, softmax.weight, softmax.bias]
    weighting = torch.rand(WORDS, dtype=torch.double)
    expected = plain(softmax, hidden, targets)
    expected_grads = torch.autograd.grad((expected * weighting).sum(), wanted)
    losses = losses_of(softmax, hidden, targets, None)
    grads = torch.autograd.grad((losses * weighting).sum(), wanted)
    torch.testing.assert_close(losses, expected)
    for ours, theirs in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_full_softmax_of_huge_logits_is_finite() -> None:
    softmax = softmax_of()
    with torch.no_grad():
        softmax.weight.mul_(1e4)
    losses = losses_of(softmax, *case(), None)
    assert torch.isfinite(losses).all()


def test_all_words_sampled_equals_the_full_softmax(path: str) -> None:
    softmax = softmax_of()
    hidden, targets = case()
    negatives = draw_negatives(VOCABULARY, VOCABULARY, (0,))
    sampled = losses_of(softmax, hidden, targets, negatives)
    torch.testing.assert_close(sampled, plain(softmax, hidden, targets))
    wanted = [hidden, softmax.weight, softmax.bias]
    full_grads = torch.autograd.grad(plain(softmax, hidden, targets).sum(), wanted)
    for ours, theirs in zip(torch.autograd.grad(sampled.sum(), wanted), full_grads, strict=True):
        torch.testing.assert_close(ours.to_dense(), theirs)


def test_sampled_gradients_are_sparse_and_touch_only_their_rows(path: str) -> None:
    softmax = softmax_of()
    hidden, targets = case()
    negatives = draw_negatives(5, VOCABULARY, (0,))
    losses_of(softmax, hidden, targets, negatives).sum().backward()
    for parameter in softmax.parameters():
        assert parameter.grad is not None
        assert parameter.grad.is_sparse
        rows = set(parameter.grad.coalesce().indices()[0].tolist())
        assert rows == set(targets.tolist()) | set(negatives.ids.tolist())


def test_accidental_hits_are_masked(path: str) -> None:
    softmax = softmax_of()
    hidden, _ = case()
    targets = torch.full((WORDS,), 3)
    given = (hidden.unsqueeze(0), targets.unsqueeze(0))
    zero = torch.zeros(1, WORDS)
    with_hit = softmax.sampled_loss(*given, torch.tensor([[3, 7]]), zero, torch.zeros(1, 2))
    without = softmax.sampled_loss(*given, torch.tensor([[7]]), zero, torch.zeros(1, 1))
    torch.testing.assert_close(with_hit, without)


@pytest.mark.parametrize("sampled", [True, False])
def test_ignored_targets_cost_nothing(path: str, sampled: bool) -> None:
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
def test_several_directions_equal_one_after_the_other(
    path: str, num_sets: int, dtype: torch.dtype
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
    for ours, theirs in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(ours.to_dense(), theirs)


def reference(
    softmax: SampledSoftmax, hidden: torch.Tensor, targets: torch.Tensor, negatives: Negatives
) -> torch.Tensor:
    """The sampled loss written down as it is defined, by torch's own cross entropy."""
    real, size = targets.clamp(min=0), VOCABULARY
    counts = [log_expected_count(ids, negatives.num_tries, size) for ids in (real, negatives.ids)]
    true = (hidden * softmax.weight[real]).sum(dim=1) + softmax.bias[real, 0] - counts[0]
    sampled = hidden @ softmax.weight[negatives.ids].t() + softmax.bias[negatives.ids, 0]
    sampled = (sampled - counts[1]).masked_fill(negatives.ids == real.unsqueeze(1), -torch.inf)
    logits = torch.cat([true.unsqueeze(1), sampled], dim=1)
    losses = F.cross_entropy(logits, torch.zeros_like(real), reduction="none")
    return losses.masked_fill(targets == -1, 0.0).to(hidden.dtype)


def test_draws_are_distinct_repeatable_and_counted() -> None:
    first, again = (draw_negatives(400, 5000, (1, 2, 0)) for _ in range(2))
    assert torch.equal(first.ids, again.ids)
    assert first.num_tries == again.num_tries >= 400
    assert len(first.ids.unique()) == 400
    assert 0 <= first.ids.min() <= first.ids.max() < 5000
    assert not torch.equal(first.ids, draw_negatives(400, 5000, (1, 2, 1)).ids)


def test_the_number_of_tries_is_that_of_drawing_one_by_one() -> None:
    size, count, seed = 300, 40, (7,)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    uniform = generator.random(1024)
    seen: list[int] = []
    tries = 0
    while len(seen) < count:
        k = int(math.exp(uniform[tries] * math.log(size + 1))) - 1
        tries += 1
        if k not in seen:
            seen.append(k)
    negatives = draw_negatives(count, size, seed)
    assert negatives.ids.tolist() == seen
    assert negatives.num_tries == tries


def test_draws_follow_the_log_uniform_distribution_and_its_expected_count() -> None:
    size, count, repeats = 40, 10, 4000
    draws = [draw_negatives(count, size, (seed,)) for seed in range(repeats)]
    ids = torch.arange(size)
    assert log_uniform(ids, size).sum().item() == pytest.approx(1.0, abs=1e-12)
    frequency = torch.bincount(torch.cat([d.ids for d in draws]), minlength=size) / repeats
    expected = torch.stack([log_expected_count(ids, d.num_tries, size).exp() for d in draws])
    # The expected count given the tries is the original's approximation; its mean is close.
    assert (frequency - expected.mean(dim=0)).abs().max() < 0.02
    assert frequency.sum().item() == pytest.approx(count)


def test_initialisers() -> None:
    torch.manual_seed(0)
    softmax = SampledSoftmax(2000, 512)
    assert softmax.weight.std().item() == pytest.approx(1 / math.sqrt(512), rel=0.01)
    assert not softmax.bias.any()
