from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.errors import DivergedError
from bilm.model.language_model import BiLm
from bilm.text.characters import SPECIAL_WORDS
from bilm.training.perplexity import Perplexity, loss_totals, perplexity
from tests.bilm.small_corpus import write_corpus
from tests.conftest import tiny_model_config

# The weights with one row per word.
TABLES = ("softmax.weight", "softmax.bias", "encoder.weight")


def test_huge_losses_stay_finite() -> None:
    assert math.isfinite(perplexity(1e9))
    assert math.isfinite(Perplexity((1e9, 1e9), 1, 0.0).mean)


def test_mean_is_geometric() -> None:
    measured = Perplexity((1.0, 3.0), 10, 0.0)
    by_direction = measured.by_direction
    assert measured.mean**2 == pytest.approx(by_direction["forward"] * by_direction["backward"])


def test_totals_of_two_ranks_equal_those_of_one(tmp_path: Path) -> None:
    sentences = [[f"w{(i * j) % 7}" for j in range(1, 4 + i % 5)] for i in range(60)]
    (tmp_path / "corpus").mkdir()
    corpus = write_corpus(tmp_path / "corpus", {"train": sentences})
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(dropout=0.5), corpus.vocabulary_size).train()
    device = torch.device("cpu")
    batch = GlobalBatch(rows=4, unroll=5, shuffle=False)
    one = loss_totals(model, BatchStream(corpus, "train", batch), device)
    two = [
        loss_totals(model, BatchStream(corpus, "train", batch, RankShare(rank, 2)), device)
        for rank in range(2)
    ]
    sums = two[0].loss_sums + two[1].loss_sums
    torch.testing.assert_close(sums, one.loss_sums, atol=1e-5, rtol=1e-6)
    assert one.predictions == two[0].predictions + two[1].predictions
    assert one.predictions == sum(len(s) + 1 for s in sentences)
    assert model.training  # restored; dropout was off, or the sums would differ
    measured = one.perplexity(corpus, "train")
    assert measured.mean == pytest.approx(math.sqrt(math.prod(measured.by_direction.values())))
    with pytest.raises(DivergedError, match="not finite"):
        replace(one, loss_sums=one.loss_sums * torch.nan).perplexity(corpus, "train")


@pytest.mark.parametrize("characters", [{}, None])
def test_order_of_special_words_permutes_rows_only(
    tmp_path: Path, characters: dict[str, int] | None
) -> None:
    sentences = [[f"w{(i * j) % 7}" for j in range(1, 4 + i % 5)] for i in range(60)]
    known = ["w1", "w0", "w3"]  # the other words are <UNK> as targets
    config = tiny_model_config(characters=characters)
    torch.manual_seed(0)
    standard = BiLm(config, 6)
    batch, device = GlobalBatch(rows=4, unroll=5, shuffle=False), torch.device("cpu")
    measured = []
    for number, order in enumerate(itertools.permutations(SPECIAL_WORDS)):
        vocabulary = [*order, *known]
        corpus = write_corpus(tmp_path / str(number), {"train": sentences}, vocabulary)
        rows = torch.tensor([[*SPECIAL_WORDS, *known].index(word) for word in vocabulary])
        model = BiLm(config, 6)
        model.load_state_dict(
            {
                name: weight[rows] if name in TABLES else weight
                for name, weight in standard.state_dict().items()
            }
        )
        totals = loss_totals(model, BatchStream(corpus, "train", batch), device)
        measured.append(totals.perplexity(corpus, "train"))
    for other in measured[1:]:
        assert other.losses == pytest.approx(measured[0].losses, rel=1e-6)
        assert other.unknown_share == measured[0].unknown_share > 0.1
