from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.errors import DivergedError
from bilm.model.language_model import BiLm
from bilm.training.perplexity import Perplexity, loss_sums, perplexity, perplexity_of
from tests.bilm.small_corpus import write_corpus
from tests.conftest import tiny_model_config


def test_hopeless_losses_stay_numbers() -> None:
    assert math.isfinite(perplexity(1e9))
    assert math.isfinite(Perplexity((1e9, 1e9), 1, 0.0).mean)


def test_the_rows_of_two_ranks_sum_up_to_those_of_one(tmp_path: Path) -> None:
    sentences = [[f"w{(i * j) % 7}" for j in range(1, 4 + i % 5)] for i in range(60)]
    (tmp_path / "corpus").mkdir()
    corpus = write_corpus(tmp_path / "corpus", {"train": sentences})
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(dropout=0.5), corpus.vocabulary_size).train()
    device = torch.device("cpu")
    batch = GlobalBatch(4, 5, shuffle=False)
    one = loss_sums(model, BatchStream(corpus, "train", batch), device)
    parts = [
        loss_sums(model, BatchStream(corpus, "train", batch, RankShare(rank, 2)), device)
        for rank in range(2)
    ]
    torch.testing.assert_close(sum(parts), one, atol=1e-5, rtol=1e-6)
    assert one[-1] == sum(len(s) + 1 for s in sentences)
    assert model.training  # as it was; dropout did not act, or the two would differ
    found = perplexity_of(one, corpus, "train")
    assert found.mean == pytest.approx(math.sqrt(math.prod(found.by_direction.values())))
    with pytest.raises(DivergedError, match="not all finite"):
        perplexity_of(one * torch.nan, corpus, "train")
