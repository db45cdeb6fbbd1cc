from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.comparison import fitting
from experiments.comparison.cache import open_stored, pooled, write_features
from experiments.comparison.evaluate import problem_of
from experiments.comparison.features import FloatArray, Words
from experiments.comparison.heads import Head, Moments
from experiments.comparison.tasks import Example


class OneHot:
    """Features from which the first letter of a word can be read."""

    num_layers, dim, num_parameters = 2, 4, 0

    def words(self, sentences: list[Words]) -> list[FloatArray]:
        table = {"a": 0, "b": 1, "c": 2}
        eye = np.eye(4, dtype=np.float32)
        single = [np.stack([eye[table[word[0]]] for word in words]) for words in sentences]
        return [np.stack([np.zeros_like(array), array]) for array in single]


def examples() -> dict[str, list[Example]]:
    tags = {"a": "B-X", "b": "I-X", "c": "O"}
    generator = np.random.default_rng(0)
    splits = {}
    for name in ("train", "validation", "test"):
        sentences = [generator.choice(list("abc"), 6).tolist() for _ in range(30)]
        splits[name] = [Example(tuple(s), tuple(tags[w] for w in s)) for s in sentences]
    return splits


def test_linear_tagger_learns_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "ROUND_STEPS", 40)
    splits = examples()
    for name, part in splits.items():
        write_features(OneHot(), part, tmp_path / f"ner_{name}.npy", is_pooled=False)
    problem = problem_of("ner", splits, tmp_path)
    rows = np.arange(len(problem.splits["train"].classes))
    result = fitting.fit_share(problem, lambda seed: rows, num_seeds=2, with_test=True)
    assert result["test"] == [1.0, 1.0]
    assert len(result["grid"]) == len(fitting.WORD_GRID)


def test_pooled_features_are_mean_and_maximum() -> None:
    words = np.array([[[1, 4], [3, 2]]], dtype=np.float32)
    assert pooled(words).tolist() == [[2, 3, 3, 4]]
    assert pooled(words[:, :0]).tolist() == [[0, 0, 0, 0]]


def test_stored_features_keep_the_order(tmp_path: Path) -> None:
    part = [Example(("a", "c"), ("x", "y")), Example(("b",), ("x",))]
    write_features(OneHot(), part, tmp_path / "pos_train.npy", is_pooled=False)
    stored = open_stored(tmp_path, "pos", "train")
    assert stored.shape == (3, 2, 4)
    assert stored[:, 1].argmax(axis=-1).tolist() == [0, 2, 1]


def test_head_standardizes_and_mixes_layers() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (500, 2, 4))).float()
    moments = Moments.of(rows, np.arange(500))
    head = Head(moments, num_classes=3, hidden_dim=0, dropout=0.0)
    standardized = (rows - moments.mean) / moments.deviation
    expected = head.output(standardized.mean(dim=1))
    torch.testing.assert_close(head(rows), expected, atol=1e-4, rtol=1e-4)
    assert head.shares() == [0.5, 0.5]
