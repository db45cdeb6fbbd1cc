from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bilm.model.negatives import draw_negatives, log_expected_count, log_uniform


def test_draws_are_distinct_repeatable_and_counted() -> None:
    first, again = (draw_negatives(400, 5000, (1, 2, 0)) for _ in range(2))
    assert torch.equal(first.ids, again.ids)
    assert first.num_tries == again.num_tries >= 400
    assert len(first.ids.unique()) == 400
    assert 0 <= first.ids.min() <= first.ids.max() < 5000
    assert not torch.equal(first.ids, draw_negatives(400, 5000, (1, 2, 1)).ids)


def test_number_of_tries_equals_drawing_one_by_one() -> None:
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


def test_draws_follow_log_uniform_distribution() -> None:
    size, count, repeats = 40, 10, 4000
    draws = [draw_negatives(count, size, (seed,)) for seed in range(repeats)]
    ids = torch.arange(size)
    assert log_uniform(ids, size).sum().item() == pytest.approx(1.0, abs=1e-12)
    frequency = torch.bincount(torch.cat([d.ids for d in draws]), minlength=size) / repeats
    expected = torch.stack([log_expected_count(ids, d.num_tries, size).exp() for d in draws])
    # Given the number of tries, the original implementation approximates the expected count.
    assert (frequency - expected.mean(dim=0)).abs().max() < 0.02
    assert frequency.sum().item() == pytest.approx(count)


def test_drawing_all_words_needs_no_tries() -> None:
    negatives = draw_negatives(7, 7, (0,))
    assert negatives.ids.tolist() == list(range(7))
    assert negatives.num_tries == 0
    assert not negatives.log_counts(torch.tensor([0, 6]), 7).any()
