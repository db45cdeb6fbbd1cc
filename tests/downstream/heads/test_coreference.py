from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from downstream.features.document_source import (
    ClusterTargets,
    DocumentInputs,
    DocumentSource,
    genre_ids,
    speaker_ids,
    windows_of,
)
from downstream.features.plain_words import PlainWords, WordLayersFile
from downstream.features.word_ranges import WordRanges
from downstream.heads.coreference import (
    CorefDescription,
    CorefModel,
    CorefPrediction,
    true_clusters,
)
from downstream.heads.saved_head import FileRecord
from downstream.heads.spans import SpanGrid
from downstream.settings.common import MixSettings
from downstream.settings.coreference import CorefHeadSettings
from downstream.texts.clusters import Clusters, Mention

DOCUMENTS = [
    [["the", "cat", "sat"], ["it", "ran", "to", "the", "cat", "again"]],
    [["a"]],
    [["mat", "the", "x"], ["it"]],
]
CLUSTERS: list[Clusters] = [
    ((Mention(0, 1), Mention(3, 3), Mention(6, 7)), (Mention(2, 2),)),
    (),
    ((Mention(0, 0), Mention(3, 3)),),
]


def description(**changes: Any) -> CorefDescription:
    head = {"encoder_dim": 5, "hidden_dim": 7, "character_filters": 6, "dropout": 0.0}
    head |= {"max_span_words": 3, "max_antecedents": 2, "spans_per_word": 0.7}
    fields: dict[str, Any] = {
        "format": "bilm-coreference",
        "version": 1,
        "bilm": FileRecord(path="", digest=""),
        "vectors": None,
        "vector_dim": 4,
        "mix_kind": "trainable",
        "mix": MixSettings(dropout=0.0),
        "num_layers": 3,
        "dim": 6,
        "seed": 0,
        "singletons": True,
        "genres": (),
        "has_speakers": False,
        "window_words": 99,
        "head": CorefHeadSettings.model_validate({**head, **changes.pop("head", {})}),
    }
    return CorefDescription(**{**fields, **changes})


def model(**changes: Any) -> CorefModel:
    torch.manual_seed(0)
    return description(**changes).build().eval()


def source() -> tuple[DocumentSource, ClusterTargets]:
    rng = np.random.default_rng(0)
    words = PlainWords.of_texts([sentence for document in DOCUMENTS for sentence in document])
    layers = rng.standard_normal((len(words.word_ids), 3, 6)).astype(np.float32)
    table = rng.standard_normal((len(words.types), 4)).astype(np.float32)
    ranges = WordRanges(WordLayersFile(words, layers), table, True)
    lengths = [[len(s) for s in document] for document in DOCUMENTS]
    windows = windows_of(lengths, [0, 2, 3], 99, overlap=True)
    speakers = [speaker_ids(list("aaabbbaaa"), 9), speaker_ids(None, 1), speaker_ids(None, 4)]
    inputs = DocumentInputs(windows, genre_ids(["x", None, "y"], ["x", "y"]), speakers)
    return DocumentSource(ranges, inputs), ClusterTargets(CLUSTERS, windows)


CASES: list[dict[str, Any]] = [
    {},
    {"mix_kind": "none", "singletons": False},
    {"head": {"elmo_at": "both", "characters": True, "encoder_layers": 2}},
    {"head": {"elmo_at": "output"}, "genres": ("x", "y"), "has_speakers": True},
]


@pytest.mark.parametrize("changes", CASES)
def test_outputs_do_not_depend_on_the_batch(changes: dict[str, Any]) -> None:
    net, (examples, targets) = model(**changes), source()
    together = net(examples.batch(np.arange(3)))
    losses = net._losses(together, targets.batch(np.arange(3)))
    predictions = net.decode(together)
    for i in range(3):
        index = np.array([i])
        (alone,) = net(examples.batch(index))
        torch.testing.assert_close(alone.grid.scores, together[i].grid.scores)
        torch.testing.assert_close(alone.antecedents.scores, together[i].antecedents.scores)
        torch.testing.assert_close(net.loss([alone], targets.batch(index)), losses[i])
        assert net.decode([alone]) == predictions[i : i + 1]


@pytest.mark.parametrize("changes", CASES)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any]) -> None:
    net, (examples, targets) = model(**changes).train(), source()
    outputs = net(examples.batch(np.arange(3)))
    (net.loss(outputs, targets.batch(np.arange(3))) + net.regularization()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        assert torch.isfinite(parameter.grad).all(), name


def test_sentences_are_read_alone() -> None:
    """A changed word changes the spans of its own sentence only."""
    net, (examples, _) = model(mix_kind="none", head={"characters": False}), source()
    batch = examples.batch(np.array([0]))
    before = net(batch)[0].grid
    assert batch.vectors is not None
    batch.vectors[1, 0] += 1.0
    after = net(batch)[0].grid
    mask = before.mask
    torch.testing.assert_close(after.scores[:3][mask[:3]], before.scores[:3][mask[:3]])
    assert not torch.allclose(after.scores[3:][mask[3:]], before.scores[3:][mask[3:]])


def test_predictions_are_spans_inside_sentences() -> None:
    net, (examples, targets) = model(), source()
    outputs = net(examples.batch(np.arange(3)))
    predictions = net.decode(outputs, targets.batch(np.arange(3)))
    ends = [2, 8]
    for mention in (m for cluster in predictions[0].clusters for m in cluster):
        assert mention.last <= min(end for end in ends if end >= mention.first)
        assert mention.last - mention.first < 3
    mean = np.mean([p.loss for p in predictions])
    assert net.evaluate(predictions, targets).loss == pytest.approx(mean)
    assert all(p.loss is None for p in net.decode(outputs))
    assert [len(window.first) for window in outputs] == [6, 1, 2]


def test_singletons_have_a_positive_mention_score() -> None:
    for singletons in (True, False):
        net, (examples, _) = model(singletons=singletons), source()
        for threshold in (-1.0, 1.0):  # all spans, then none
            with torch.no_grad():
                net.spans.score.weight.zero_()
                net.spans.score.bias.fill_(-10.0 * threshold)
                net.antecedents.score.bias.fill_(-99.0)  # no links
            clusters = net.decode(net(examples.batch(np.array([0]))))[0].clusters
            assert len(clusters) == (6 if singletons and threshold < 0 else 0)


def test_words_are_counted_from_the_beginning_of_the_document() -> None:
    net, (examples, targets) = model(), source()
    batch = examples.batch(np.array([0]))
    clusters = net.decode(net(batch))[0].clusters
    batch.extras["first_words"] += 100  # type: ignore[operator]
    moved = net.decode(net(batch))[0].clusters
    assert clusters
    assert moved == tuple(tuple(Mention(a + 100, b + 100) for a, b in c) for c in clusters)
    assert len(targets) == 3


def test_true_clusters_leave_out_long_mentions() -> None:
    grid = SpanGrid(torch.zeros(4, 2, 1), torch.zeros(4, 2), torch.ones(4, 2, dtype=torch.bool))
    targets = torch.tensor([[0, 0, 0, 7], [0, 1, 2, 8], [0, 0, 3, 9]])
    assert true_clusters(grid, targets).tolist() == [[7, -1], [-1, 8], [-1, -1], [-1, -1]]


def test_evaluation_is_the_conll_score() -> None:
    net, (_, targets) = model(), source()
    right = net.evaluate([CorefPrediction(clusters, 1.0) for clusters in CLUSTERS], targets)
    assert (right.loss, right.accuracy) == (1.0, pytest.approx(1.0))
    wrong = net.evaluate([CorefPrediction((), 2.0)] * 3, targets)
    assert (wrong.loss, wrong.accuracy) == (2.0, 0.0)
