from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from downstream.features.plain_words import PlainWords, WordLayersFile
from downstream.features.tag_sources import NO_TAG, TagInputs, TagSource, TagTargets
from downstream.features.word_ranges import WordRanges
from downstream.heads.saved_head import FileRecord
from downstream.heads.tagger import TaggerDescription, TaggerModel, TagPrediction
from downstream.settings.common import MixSettings
from downstream.settings.tagging import TagHeadSettings
from downstream.texts.tag_sequences import bio_labels

SENTENCES = [["the", "cat", "sat", "on"], ["a"], ["mat", "the", "x"]]
LABELS = bio_labels(["A"])


def description(**changes: Any) -> TaggerDescription:
    head = {"encoder_dim": 5, "character_filters": 6, "dropout": 0.0, **changes.pop("head", {})}
    fields: dict[str, Any] = {
        "format": "bilm-tagger",
        "version": 1,
        "bilm": FileRecord(path="", digest=""),
        "vectors": None,
        "vector_dim": 4,
        "mix_kind": "trainable",
        "mix": MixSettings(),
        "num_layers": 3,
        "dim": 6,
        "seed": 0,
        "labels": LABELS,
        "is_bio": True,
        "excluded": (),
        "has_predicates": False,
        "predicate_words": (),
        "head": TagHeadSettings.model_validate(head),
    }
    return TaggerDescription(**{**fields, **changes})


def model(**changes: Any) -> TaggerModel:
    torch.manual_seed(0)
    return description(**changes).build().eval()


def source(indices: list[int], predicates: bool = False) -> TagSource:
    rng = np.random.default_rng(0)
    words = PlainWords.of_texts(SENTENCES)
    layers = rng.standard_normal((len(words.word_ids), 3, 6)).astype(np.float32)
    table = rng.standard_normal((len(words.types), 4)).astype(np.float32)
    places = np.array([0] * len(indices)) if predicates else None
    ranges = WordRanges(WordLayersFile(words, layers), table, True)
    return TagSource(ranges, TagInputs(np.array(indices), places))


CASES: list[dict[str, Any]] = [
    {},
    {"mix_kind": "none"},
    {"head": {"elmo_at": "both", "characters": True, "encoder_layers": 2}},
    {"head": {"elmo_at": "output"}, "has_predicates": True},
    {"head": {"crf": False}},
]


@pytest.mark.parametrize("changes", CASES)
def test_scores_do_not_depend_on_the_batch(changes: dict[str, Any]) -> None:
    net, examples = model(**changes), source([0, 1, 2], "has_predicates" in changes)
    together = net(examples.batch(np.arange(3)))
    targets = torch.tensor([[0, 1, 2, 0], [1, -1, -1, -1], [0, 0, 1, -1]])
    losses = net._losses(together, targets)
    for i, words in enumerate(SENTENCES):
        alone = net(examples.batch(np.array([i])))
        torch.testing.assert_close(alone.emissions[0], together.emissions[i, : len(words)])
        loss = net.loss(alone, targets[i : i + 1, : len(words)])
        torch.testing.assert_close(loss, losses[i])


@pytest.mark.parametrize("changes", CASES)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any]) -> None:
    net, examples = model(**changes).train(), source([0, 1, 2], "has_predicates" in changes)
    outputs = net(examples.batch(np.arange(3)))
    targets = torch.tensor([[0, 1, 2, 0], [1, -1, -1, -1], [0, 0, 1, -1]])
    (net.loss(outputs, targets) + net.regularization()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        assert torch.isfinite(parameter.grad).all(), name


def test_predictions_are_legal_and_have_the_length_of_the_sentence() -> None:
    net, examples = model(), source([0, 1, 2])
    outputs = net(examples.batch(np.arange(3)))
    targets = TagTargets([("O",) * 4, ("B-A",), ("O",) * 3], [np.zeros(4, int)] * 3)
    predictions = net.decode(outputs, torch.zeros(3, 4, dtype=torch.int64))
    assert [len(p.tags) for p in predictions] == [4, 1, 3]
    assert net.evaluate(predictions, targets).loss == pytest.approx(
        np.mean([p.loss for p in predictions])
    )
    assert all(p.loss is None for p in net.decode(outputs))


def test_excluded_types_do_not_decide_the_best_epoch() -> None:
    net = model(labels=bio_labels(["A", "V"]), excluded=("V",))
    targets = TagTargets([("B-V", "B-A")], [np.array([0, 0])])
    right = net.evaluate([TagPrediction(("B-V", "B-A"), 1.0)], targets)
    wrong = net.evaluate([TagPrediction(("B-V", "O"), 1.0)], targets)
    assert (right.accuracy, wrong.accuracy) == (1.0, 0.0)


def test_targets_are_padded() -> None:
    targets = TagTargets([("O",), ("O", "O")], [np.array([1]), np.array([2, 0])])
    assert targets.batch(np.array([1, 0])).tolist() == [[2, 0], [1, NO_TAG]]
    assert len(targets) == 2


def test_predicates_and_characters_are_extras_of_the_batch() -> None:
    batch = source([0, 2], predicates=True).batch(np.array([0, 1]))
    assert batch.extras["predicates"].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    characters, index = batch.extras["characters"], batch.extras["character_index"]
    assert characters.shape == (
        6,
        5,
    )  # "the", which pads, cat, sat, on, mat, x; 3 letters and marks
    assert index[0, 0] == index[1, 1]
