from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from bilm.model.language_model import BiLm
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import Tokenizer, WhitespaceTokenizer
from bilm.text.vocabulary import Vocabulary
from tests.conftest import GOLDEN, tiny_model_config


def pretrained_of(
    seed: int = 0, tokenizer: Tokenizer | None = None, **changes: Any
) -> PretrainedBiLm:
    torch.manual_seed(seed)
    return PretrainedBiLm(BiLm(tiny_model_config(**changes), None), None, tokenizer)


def test_covers_everything_that_determines_vectors() -> None:
    digests = [
        model_digest(pretrained)
        for pretrained in (
            pretrained_of(),
            pretrained_of(seed=1),
            pretrained_of(lstm={"cell_clip": 2.0}),
            pretrained_of(tokenizer=WhitespaceTokenizer()),
            pretrained_of(tokenizer=WhitespaceTokenizer(lowercase=True)),
        )
    ]
    assert len(set(digests)) == len(digests)
    assert model_digest(pretrained_of()) == digests[0]


def test_ignores_softmax_and_dropout() -> None:
    expected = model_digest(pretrained_of())
    assert model_digest(pretrained_of(dropout=0.5)) == expected
    assert model_digest(pretrained_of(softmax={"num_negatives": 30})) == expected
    torch.manual_seed(0)
    with_softmax = PretrainedBiLm(BiLm(tiny_model_config(), 30))
    digest = model_digest(with_softmax)
    assert model_digest(replace(with_softmax, model=with_softmax.model.without_softmax())) == digest
    with torch.no_grad():
        assert with_softmax.model.softmax is not None
        with_softmax.model.softmax.bias.add_(1.0)
    assert model_digest(with_softmax) == digest


def test_digest_includes_vocabulary_only_for_word_ids() -> None:
    words = Vocabulary.read(GOLDEN / "vocab.txt")
    others = Vocabulary([*words.words[:-1], "other"])
    for characters, is_equal in (({}, True), (None, False)):
        torch.manual_seed(0)
        model = BiLm(tiny_model_config(characters=characters), len(words))
        digests = [model_digest(PretrainedBiLm(model, v)) for v in (words, others)]
        assert (digests[0] == digests[1]) == is_equal
