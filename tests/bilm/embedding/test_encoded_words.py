from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from bilm.embedding.embedder import Embedder, Limits
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from tests.bilm.embedding.golden_model import SENTENCES, golden_embedder
from tests.conftest import tiny_model_config


def test_encodes_each_word_once_and_bounds_the_table() -> None:
    cached = golden_embedder()
    first = cached.embed(SENTENCES)
    distinct = {word for sentence in SENTENCES for word in sentence} | {"<S>", "</S>"}
    assert cached._encoded_words.num_encoded == len(cached._encoded_words) == len(distinct)
    again = cached.embed(SENTENCES[::-1])[::-1]
    assert cached._encoded_words.num_encoded == len(distinct)
    # With a table that is too small, words are encoded again and the numbers stay the same.
    small = golden_embedder(batch_words=16, window_words=64, cached_words=12)
    for _ in range(2):
        for one, two, other in zip(small.embed(SENTENCES), first, again, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
            np.testing.assert_allclose(other, two, atol=1e-6)
    assert small._encoded_words.num_encoded > len(distinct)
    assert len(small._encoded_words) <= 2 * 16 + 12


def test_pinned_words_make_windows_independent() -> None:
    """Words that are encoded in other calls may differ in the last bit, and then so do vectors."""
    rng = random.Random(0)
    texts = [[[f"w{rng.randrange(900)}" for _ in range(9)] for _ in range(50)] for _ in range(4)]
    pinned = [word for sentence in texts[0] for word in sentence]
    torch.manual_seed(0)
    pretrained = PretrainedBiLm(BiLm(tiny_model_config(), None))
    one = Embedder(pretrained)
    one.pin_words(pinned)
    for text in texts[::-1]:
        other = Embedder(pretrained)
        other.pin_words(pinned)
        for x, y in zip(one.embed(text), other.embed(text), strict=True):
            np.testing.assert_array_equal(x, y)
    assert len(one._encoded_words) == len({*pinned, "<S>", "</S>"})


def test_bounds_pinned_words_by_half_of_the_table() -> None:
    embedder = golden_embedder(cached_words=12)
    expected = golden_embedder().embed(SENTENCES)
    embedder.pin_words([f"w{i}" for i in range(100)])
    assert len(embedder._encoded_words) == 6
    for x, y in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_clears_the_table_when_weights_change() -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), None)
    embedder = Embedder(PretrainedBiLm(model))
    (before,) = embedder.embed([["a", "word"]])
    with torch.no_grad():
        next(model.encoder.parameters()).mul_(2.0)
    (after,) = embedder.embed([["a", "word"]])
    (fresh,) = Embedder(PretrainedBiLm(model)).embed([["a", "word"]])
    assert abs(before[0] - after[0]).max() > 1e-3
    np.testing.assert_array_equal(after, fresh)


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_thread_switches")
def test_eight_threads_share_one_embedder() -> None:
    """The table has 20 words, so each request moves rows that other threads have looked up."""
    torch.manual_seed(0)
    pretrained = PretrainedBiLm(BiLm(tiny_model_config(), None))
    texts = [
        [[f"word{(7 * thread + 3 * i + k) % 60}" for k in range(5)] for i in range(200)]
        for thread in range(8)
    ]
    expected = [Embedder(pretrained).embed(text) for text in texts]
    limits = Limits(batch_words=40, window_words=40, cached_words=20)
    shared = Embedder(pretrained, limits)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(shared.embed, texts))
    for arrays, others in zip(found, expected, strict=True):
        for array, other in zip(arrays, others, strict=True):
            np.testing.assert_allclose(array, other, atol=1e-6)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_start_with_an_empty_table(how: str) -> None:
    embedder = golden_embedder()
    (expected,) = embedder.embed(SENTENCES[:1])
    copied = copy.deepcopy(embedder) if how == "deepcopy" else pickle.loads(pickle.dumps(embedder))
    assert len(copied._encoded_words) == 0
    np.testing.assert_allclose(copied.embed(SENTENCES[:1])[0], expected, atol=1e-6)


def test_words_encoded_singly_do_not_depend_on_other_words() -> None:
    rng = random.Random(1)
    sentences = [[f"w{rng.randrange(300)}" for _ in range(rng.randrange(1, 20))] for _ in range(40)]
    torch.manual_seed(0)
    pretrained = PretrainedBiLm(BiLm(tiny_model_config(), None))
    limits = Limits(batch_invariant=True)
    together = Embedder(pretrained, limits).embed(sentences)
    for sentence, vectors in zip(sentences, together, strict=True):
        (alone,) = Embedder(pretrained, limits).embed([sentence])
        words, alone_words = vectors[0], alone[0]
        assert np.array_equal(words, alone_words)
