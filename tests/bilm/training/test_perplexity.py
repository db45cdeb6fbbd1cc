from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import SINGLE_RANK, GlobalBatch, RankShare
from bilm.corpus.reader import Corpus
from bilm.errors import DivergedError
from bilm.model.language_model import BiLm
from bilm.text.characters import SPECIAL_WORDS
from bilm.training.perplexity import (
    EvaluatedText,
    Perplexity,
    evaluation_order,
    loss_totals,
    perplexity,
)
from tests.bilm.small_corpus import write_corpus
from tests.conftest import tiny_model_config

# The weights with one row per word.
TABLES = ("softmax.weight", "softmax.bias", "encoder.weight")


def test_huge_losses_stay_finite() -> None:
    assert math.isfinite(perplexity(1e9))
    assert math.isfinite(Perplexity((1e9, 1e9), 1, 0.0, 1).mean)


def test_mean_is_geometric() -> None:
    measured = Perplexity((1.0, 3.0), 10, 0.0, 10)
    by_direction = measured.by_direction
    assert measured.mean**2 == pytest.approx(by_direction["forward"] * by_direction["backward"])


SENTENCES = [[f"w{(i * j) % 7}" for j in range(1, 4 + i % 5)] for i in range(60)]
NUM_PREDICTIONS = sum(len(sentence) + 1 for sentence in SENTENCES)
SHAPE = GlobalBatch(rows=4, unroll=5)
CPU = torch.device("cpu")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    known = [*SPECIAL_WORDS, "w0", "w1", "w2", "w3", "w4"]  # w5 and w6 are unknown
    return write_corpus(tmp_path / "corpus", {"train": SENTENCES}, known, block_words=16)


@pytest.fixture
def model(corpus: Corpus) -> BiLm:
    torch.manual_seed(0)
    return BiLm(tiny_model_config(dropout=0.5), corpus.vocabulary_size).train()


def open_text(
    corpus: Corpus, max_words: int | None, share: RankShare = SINGLE_RANK
) -> EvaluatedText:
    """Return the text of an evaluation of the training split."""
    batch, num_steps = evaluation_order(corpus.split("train"), SHAPE, max_words)
    return EvaluatedText(BatchStream(corpus, "train", batch, share), num_steps)


@pytest.mark.parametrize("max_words", [None, 40])
def test_totals_of_two_ranks_equal_those_of_one(
    max_words: int | None, corpus: Corpus, model: BiLm
) -> None:
    text = open_text(corpus, max_words)
    one = loss_totals(model, text, CPU)
    two = [
        loss_totals(model, open_text(corpus, max_words, RankShare(rank, 2)), CPU)
        for rank in range(2)
    ]
    sums = two[0].loss_sums + two[1].loss_sums
    torch.testing.assert_close(sums, one.loss_sums, atol=1e-5, rtol=1e-6)
    for name in ("predictions", "sentences", "unknown_words"):
        assert getattr(one, name) == sum(getattr(part, name) for part in two)
    assert one.predictions == (max_words or NUM_PREDICTIONS)
    assert model.training  # restored; dropout was off, or the sums would differ
    measured = one.perplexity(text)
    assert measured.mean == pytest.approx(math.sqrt(math.prod(measured.by_direction.values())))
    with pytest.raises(DivergedError, match="not finite"):
        replace(one, loss_sums=one.loss_sums * torch.nan).perplexity(text)


def test_complete_evaluation_reads_split_once_in_order(corpus: Corpus, model: BiLm) -> None:
    for max_words in (None, NUM_PREDICTIONS):
        text = open_text(corpus, max_words)
        measured = loss_totals(model, text, CPU).perplexity(text)
        info = corpus.split("train")
        assert info.unknown_words > 0
        assert measured.unknown_share == info.unknown_words / info.words
        assert text.is_complete
        assert measured.text == f"{NUM_PREDICTIONS} predictions"
        in_order = BatchStream(corpus, "train", replace(SHAPE, shuffle=False))
        np.testing.assert_array_equal(text.stream.batch(3).targets, in_order.batch(3).targets)


def test_limited_evaluation_reads_fixed_subset(corpus: Corpus, model: BiLm) -> None:
    text = open_text(corpus, 50)
    assert not text.is_complete
    measured = loss_totals(model, text, CPU).perplexity(text)
    assert measured.num_predictions == 40  # whole steps of 20 predictions
    assert measured.text == f"a subset of 40 of {NUM_PREDICTIONS} predictions"
    again = open_text(corpus, 50)
    for step in range(text.num_steps):
        expected = text.stream.batch(step).targets
        np.testing.assert_array_equal(again.stream.batch(step).targets, expected)
    assert open_text(corpus, 1).num_steps == 1


@pytest.mark.parametrize("characters", [{}, None])
def test_order_of_special_words_permutes_rows_only(
    tmp_path: Path, characters: dict[str, int] | None
) -> None:
    known = ["w1", "w0", "w3"]  # the other words are <UNK> as targets
    config = tiny_model_config(characters=characters)
    torch.manual_seed(0)
    standard = BiLm(config, 6)
    measured = []
    for number, order in enumerate(itertools.permutations(SPECIAL_WORDS)):
        vocabulary = [*order, *known]
        corpus = write_corpus(tmp_path / str(number), {"train": SENTENCES}, vocabulary)
        rows = torch.tensor([[*SPECIAL_WORDS, *known].index(word) for word in vocabulary])
        model = BiLm(config, 6)
        model.load_state_dict(
            {
                name: weight[rows] if name in TABLES else weight
                for name, weight in standard.state_dict().items()
            }
        )
        text = open_text(corpus, None)
        measured.append(loss_totals(model, text, CPU).perplexity(text))
    for other in measured[1:]:
        assert other.losses == pytest.approx(measured[0].losses, rel=1e-6)
        assert other.unknown_share == measured[0].unknown_share > 0.1
