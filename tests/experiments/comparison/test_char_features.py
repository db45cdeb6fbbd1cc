from __future__ import annotations

import numpy as np
import pytest

from experiments.comparison.char_features import CharFeatures, word_places
from experiments.comparison.char_lms import Settings, alphabet_of
from experiments.comparison.char_model import new_model

REASON = "character LMs need experiments/comparison/requirements.txt"


def test_places_of_words_in_both_directions() -> None:
    words = ["ab", "c", "def"]
    text = " ".join(words)
    forward, backward = word_places(words)
    # The state at a place has read the characters up to it, with the start marker at place 0.
    padded, reversed_text = f"\n{text} ", f"\n{text[::-1]} "
    assert [padded[: place + 1].split()[-1] for place in forward] == words
    assert all(padded[place] == " " for place in forward)
    read = [reversed_text[: place + 1].split()[-1][::-1] for place in backward]
    assert read == words
    assert all(reversed_text[place] == " " for place in backward)


def test_alphabet_has_frequent_characters() -> None:
    assert alphabet_of(iter(["ab\n"] * 20 + ["a\n"] * 5)) == ["a", "\n", "b"]


@pytest.mark.slow
def test_features_are_those_of_flair() -> None:
    pytest.importorskip("flair", reason=REASON)
    from flair.data import Sentence
    from flair.embeddings import FlairEmbeddings

    alphabet = list("abcdefghijklmnopqrstuvwxyz .\n")
    models = [
        new_model(Settings(direction, hidden_dim=8), alphabet)
        for direction in ("forward", "backward")
    ]
    sentences = [["the", "bank", "floods", "."], ["a", "river"]]
    found = CharFeatures(models[0], models[1]).words(sentences)
    for words, array in zip(sentences, found, strict=True):
        parts = []
        for model in models:
            sentence = Sentence(words)
            FlairEmbeddings(model).embed(sentence)
            parts.append(np.stack([token.get_embedding().numpy() for token in sentence]))
        assert array.shape == (1, len(words), 16)
        np.testing.assert_allclose(array[0], np.concatenate(parts, axis=1), atol=1e-6)
