from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bilm import Scorer
from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import SINGLE_RANK, GlobalBatch
from bilm.embedding.embedder import Limits, StateMode
from bilm.embedding.scores import SentenceScore
from bilm.errors import CheckpointError, ConfigError, DivergedError
from bilm.kernels import full_softmax
from bilm.model.bilstm import BiLstmState
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import SPECIAL_WORDS, char_ids
from bilm.training.perplexity import EvaluatedText, evaluation_order, loss_totals
from tests.bilm.embedding.elmo_models import SENTENCES, VOCABULARY, golden, tiny
from tests.bilm.small_corpus import write_corpus


def dense_log_probabilities(
    pretrained: PretrainedBiLm, sentence: list[str], state: BiLstmState | None = None
) -> tuple[list[Tensor], BiLstmState]:
    """Return log probabilities (words + 1, vocabulary) by direction: one sentence, no chunks."""
    model = pretrained.model
    tokens = ["<S>", *sentence, "</S>"]
    ids = torch.from_numpy(char_ids(tokens, 50)).long()
    places = torch.arange(len(tokens))
    inverse = torch.stack([places[:-1], places.flip(0)[:-1]]).unsqueeze(1)  # (directions, 1, time)
    with torch.no_grad():
        layers, after = model.layers(ids, inverse, state or model.zero_state(1))
        assert model.softmax is not None
        weight, bias = model.softmax.weight, model.softmax.bias.squeeze(1)
        logits = [own[-1][:, 0] @ weight.t() + bias for own in layers]
    return [F.log_softmax(own, dim=-1) for own in logits], after


def check_score(score: SentenceScore, log_probabilities: list[Tensor], sentence: list[str]) -> None:
    forward, backward = (own.numpy() for own in log_probabilities)
    num_words, end = len(sentence), VOCABULARY["</S>"]
    ids = [VOCABULARY[word] for word in sentence]
    steps = np.arange(num_words)
    expected = -forward[steps, ids] if num_words else np.zeros(0)
    np.testing.assert_allclose(score.forward, expected, atol=1e-5)
    expected = -backward[num_words - 1 - steps, ids] if num_words else np.zeros(0)
    np.testing.assert_allclose(score.backward, expected, atol=1e-5)
    boundaries = [-forward[-1, end], -backward[-1, VOCABULARY["<S>"]]]
    np.testing.assert_allclose(score.boundaries, boundaries, atol=1e-5)
    assert score.words == tuple(sentence)
    assert score.is_unknown.tolist() == [word not in VOCABULARY for word in sentence]


@pytest.mark.parametrize("batch_words", [1, 30, 4096])
def test_scores_equal_dense_log_softmax(batch_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_softmax, "MAX_CHUNK_LOGITS", 40)
    pretrained = tiny()
    scorer = Scorer(pretrained, Limits(batch_words=batch_words, window_words=12), device="cpu")
    scores = scorer.score(SENTENCES)
    assert len(scores) == len(SENTENCES)
    for sentence, score in zip(SENTENCES, scores, strict=True):
        check_score(score, dense_log_probabilities(pretrained, sentence)[0], sentence)
    assert [score.is_unknown.sum() for score in scores] == [0, 0, 0, 0, 2]


@pytest.mark.parametrize("by_sentence", [False, True])
@pytest.mark.parametrize("batch_words", [1, 30, 4096])
def test_combined_scores_equal_the_normalized_product(batch_words: int, by_sentence: bool) -> None:
    pretrained = tiny()
    limits = Limits(batch_words=batch_words, batch_invariant=by_sentence)
    scores = Scorer(pretrained, limits, device="cpu").score([*SENTENCES, []], combined=True)
    for sentence, score in zip([*SENTENCES, []], scores, strict=True):
        log_probabilities = dense_log_probabilities(pretrained, sentence)[0]
        check_score(score, log_probabilities, sentence)
        forward, backward = (own[: len(sentence)] for own in log_probabilities)
        product = F.log_softmax(forward + backward.flip(0), dim=-1).numpy()
        ids = [VOCABULARY[word] for word in sentence]
        expected = -product[np.arange(len(sentence)), ids] if sentence else np.zeros(0)
        assert score.combined is not None
        np.testing.assert_allclose(score.combined, expected, atol=1e-5)


def test_batch_invariant_scores_do_not_depend_on_other_sentences() -> None:
    rng = np.random.default_rng(0)
    words = list(VOCABULARY.words)[3:]
    sentences = [[str(w) for w in rng.choice(words, n)] for n in rng.integers(1, 20, 30)]
    scorer = Scorer(tiny(), Limits(batch_invariant=True), device="cpu")
    together = scorer.score(sentences, combined=True)
    positions = [len(sentence) // 2 for sentence in sentences]
    likely = scorer.substitutes(sentences, positions, 5)
    for i, sentence in enumerate(sentences):
        (alone,) = scorer.score([sentence], combined=True)
        assert np.array_equal(alone.surprisals, together[i].surprisals)
        assert np.array_equal(alone.combined, together[i].combined)  # type: ignore[arg-type]
        assert scorer.substitutes([sentence], positions[i : i + 1], 5) == likely[i : i + 1]


def test_warm_and_carried_states_equal_dense_log_softmax() -> None:
    pretrained = tiny()
    scorer = Scorer(pretrained, device="cpu")
    state = None
    carried = scorer.score(SENTENCES, state="carry", batch_size=1)
    warm = scorer.score(SENTENCES, state="warm")
    for i, sentence in enumerate(SENTENCES):
        found, state = dense_log_probabilities(pretrained, sentence, state)
        check_score(carried[i], found, sentence)
        _, after = dense_log_probabilities(pretrained, sentence)
        check_score(warm[i], dense_log_probabilities(pretrained, sentence, after)[0], sentence)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_scores_do_not_depend_on_other_sentences(state: StateMode) -> None:
    scorer = Scorer(tiny(), device="cpu")
    together = scorer.score(SENTENCES, state)
    for sentence, score in zip(SENTENCES, together, strict=True):
        (alone,) = scorer.score([sentence], state)
        np.testing.assert_allclose(score.surprisals, alone.surprisals, atol=1e-5)
        np.testing.assert_allclose(score.boundaries, alone.boundaries, atol=1e-5)
    # A direction does not see the word that it predicts, or the words behind it.
    changed = scorer.score([["the", "bank", "hello", "."]], state)[0]
    if state == "reset":
        np.testing.assert_allclose(changed.forward[:2], together[0].forward[:2], atol=1e-6)
        np.testing.assert_allclose(changed.backward[3:], together[0].backward[3:], atol=1e-6)


def test_perplexity_equals_that_of_evaluation(tmp_path: Path) -> None:
    """Carry the state in one row, as an evaluation with one row does."""
    sentences = [sentence for sentence in SENTENCES if sentence]  # as in every corpus
    corpus = write_corpus(tmp_path / "corpus", {"train": sentences}, VOCABULARY.words)
    pretrained = tiny()
    batch, num_steps = evaluation_order(corpus.split("train"), GlobalBatch(1, 4), None)
    text = EvaluatedText(BatchStream(corpus, "train", batch, SINGLE_RANK), num_steps)
    expected = loss_totals(pretrained.model, text, torch.device("cpu")).perplexity(text)
    scorer = Scorer(pretrained, device="cpu")
    measured = scorer.perplexity(iter(sentences), state="carry", batch_size=1)
    assert measured.losses == pytest.approx(expected.losses, abs=1e-5)
    assert measured.mean == pytest.approx(expected.mean, rel=1e-5)
    assert measured.by_direction == pytest.approx(expected.by_direction, rel=1e-5)
    assert measured.num_predictions == expected.num_predictions
    assert measured.unknown_share == pytest.approx(expected.unknown_share)


def test_perplexity_is_the_mean_over_all_predictions() -> None:
    scorer = Scorer(tiny(), device="cpu")
    measured = scorer.perplexity(SENTENCES)
    totals = sum(score.totals for score in scorer.score(SENTENCES))
    num_predictions = sum(len(sentence) + 1 for sentence in SENTENCES)
    assert measured.num_predictions == num_predictions
    assert measured.losses == pytest.approx((totals / num_predictions).tolist())
    assert measured.mean == pytest.approx(math.sqrt(math.prod(measured.by_direction.values())))
    assert measured.unknown_share == pytest.approx(2 / sum(map(len, SENTENCES)))
    with pytest.raises(ConfigError, match="there are no sentences"):
        scorer.perplexity([])


def test_perplexity_rejects_weights_that_are_not_finite() -> None:
    pretrained = tiny()
    assert pretrained.model.softmax is not None
    with torch.no_grad():
        pretrained.model.softmax.bias.fill_(torch.nan)
    with pytest.raises(DivergedError, match="not finite"):
        Scorer(pretrained, device="cpu").perplexity(SENTENCES)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_substitutes_equal_dense_log_softmax(
    direction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_softmax, "MAX_CHUNK_LOGITS", 7)
    pretrained = tiny()
    scorer = Scorer(pretrained, Limits(batch_words=20), device="cpu")
    places = [(s, i) for s in SENTENCES for i in range(len(s))]
    sentences, positions = [s for s, _ in places], [i for _, i in places]
    everything = scorer.substitutes(sentences, positions, 100, direction, include_special=True)
    best = scorer.substitutes(sentences, positions, 3, direction)
    for sentence, position, found, few in zip(sentences, positions, everything, best, strict=True):
        forward, backward = dense_log_probabilities(pretrained, sentence)[0]
        parts = {
            "forward": forward[position],
            "backward": backward[len(sentence) - 1 - position],
        }
        product = parts["forward"] + parts["backward"]
        expected = parts.get(direction, product).softmax(dim=0)  # normalized
        assert sum(pair.probability for pair in found) == pytest.approx(1.0, abs=1e-5)
        assert len(found) == len(VOCABULARY)
        for word, probability in found:
            assert probability == pytest.approx(float(expected[VOCABULARY[word]]), abs=1e-5)
        probabilities = [pair.probability for pair in found]
        assert probabilities == sorted(probabilities, reverse=True)
        assert few == [pair for pair in found if pair.word not in SPECIAL_WORDS][:3]


def test_substitutes_ignore_the_word_at_the_position() -> None:
    scorer = Scorer(tiny(), device="cpu")
    one, other = scorer.substitutes([["the", "bank", "."], ["the", "unheard", "."]], [1, 1])
    assert [pair.word for pair in one] == [pair.word for pair in other]
    (after,) = scorer.substitutes([["the"]], [1], direction="forward")  # the next word
    (inside,) = scorer.substitutes([["the", "bank"]], [1], direction="forward")
    assert [pair.word for pair in after] == [pair.word for pair in inside]
    assert scorer.substitutes([], []) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([["a"]], [1]), "position 0 is 1; sentence 0 has 1 words, so it must be from 0 to 0"),
        (([["a"]], [-1]), "position 0 is -1"),
        (([["a"]], [2], 10, "forward"), "must be from 0 to 1"),
        (([["a"]], []), "there are 0 positions and 1 sentences"),
        (([["a"]], [0], 0), "count is 0; it must be at least 1"),
        (([["a"]], [0], 1, "left"), "direction is 'left'; it must be one of"),
    ],
)
def test_rejects_invalid_positions(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scorer(tiny(), device="cpu").substitutes(*arguments)


@pytest.mark.parametrize(
    ("positions", "count", "message"),
    [
        ([0.5], 5, "position 0 is 0.5; it must be an integer"),
        ([0, True], 5, "position 1 is True; it must be an integer"),
        (["0"], 5, "position 0 is '0'; it must be an integer"),
        (np.array([0.0, 1.0]), 5, "position 0 is .*0.0.*; it must be an integer"),
        ([0, 0], 2.5, "count is 2.5; it must be an integer"),
        ([0, 0], "5", "count is '5'; it must be an integer"),
        ([0, 0], True, "count is True; it must be an integer"),
    ],
)
def test_rejects_positions_and_counts_of_other_types(
    positions: Any, count: Any, message: str
) -> None:
    sentences = [["the", "bank"]] * len(positions)
    with pytest.raises(TypeError, match=message):
        Scorer(tiny(), device="cpu").substitutes(sentences, positions, count)


def test_accepts_integers_of_other_libraries() -> None:
    scorer = Scorer(tiny(), device="cpu")
    sentence = ["the", "bank", "floods"]
    expected = scorer.substitutes([sentence] * 3, [0, 1, 2], 4)
    for positions in (range(3), np.arange(3), torch.arange(3), np.arange(3, dtype=np.uint8)):
        assert scorer.substitutes([sentence] * 3, positions, np.int64(4)) == expected  # type: ignore[arg-type]


def test_reads_raw_text_and_paths(tmp_path: Path) -> None:
    pretrained = tiny()
    pretrained.save_pretrained(tmp_path / "model")
    scorer = Scorer(tmp_path / "model", device="cpu")
    text, words = scorer.score(["the bank floods .", ["the", "bank", "floods", "."]])
    assert text.words == words.words
    np.testing.assert_allclose(text.surprisals, words.surprisals, atol=1e-6)
    with pytest.raises(TypeError, match="score takes a list of sentences"):
        scorer.score("the bank")
    with pytest.raises(ValueError, match="state is 'keep'"):
        scorer.score(SENTENCES, state="keep")  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["softmax", "vocabulary"])
def test_rejects_models_that_cannot_predict(missing: str) -> None:
    pretrained = golden() if missing == "softmax" else PretrainedBiLm(tiny().model)
    with pytest.raises(CheckpointError, match=f"this model has no {missing}.*bilm export"):
        Scorer(pretrained)


def test_model_of_one_direction_and_of_word_ids() -> None:
    scorer = Scorer(tiny(characters=None, bidirectional=False), device="cpu")
    (score,) = scorer.score([["the", "unheard"]])
    assert score.surprisals.shape == (1, 2)
    assert score.is_unknown.tolist() == [False, True]
    assert set(scorer.perplexity(SENTENCES).by_direction) == {"forward"}
    with pytest.raises(ConfigError, match="no backward direction"):
        _ = score.backward
    with pytest.raises(ConfigError, match='has only "forward"'):
        scorer.substitutes([["the"]], [0])
    assert len(scorer.substitutes([["the"]], [0], 2, "forward")[0]) == 2


def test_bfloat16_is_close_to_float32() -> None:
    exact = Scorer(tiny(), device="cpu").perplexity(SENTENCES)
    close = Scorer(tiny(), device="cpu", precision="bfloat16").perplexity(SENTENCES)
    assert close.mean == pytest.approx(exact.mean, rel=0.05)
    assert close.mean != exact.mean
