from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bilm.embedding.embedder import Embedder, Limits
from bilm.embedding.output import Output
from bilm.errors import CheckpointError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import MosesTokenizer
from bilm.text.vocabulary import Vocabulary
from tests.bilm.embedding.golden_model import SENTENCES, golden_embedder
from tests.conftest import GOLDEN, shared_file, tiny_model_config

MODES = ("reset", "warm", "carry")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return golden_embedder()


def test_carry_matches_the_original_implementation(embedder: Embedder) -> None:
    golden = np.load(GOLDEN / "embeddings.npz")
    embedder.reset_state()
    ours = embedder.embed(SENTENCES, state="carry", batch_size=4)
    for i, array in enumerate(ours):
        expected = golden[f"batch{i // 4}/layers"][i % 4, :, : len(SENTENCES[i])]
        np.testing.assert_allclose(array, expected, atol=1e-5)


def test_carry_continues_across_calls(embedder: Embedder) -> None:
    embedder.reset_state()
    at_once = embedder.embed(SENTENCES, state="carry", batch_size=4)
    embedder.reset_state()
    parts = [embedder.embed(SENTENCES[i : i + 4], "carry", 4) for i in range(0, 12, 4)]
    for one, other in zip(at_once, [a for part in parts for a in part], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    with pytest.raises(ValueError, match="the carried state has 4 rows"):
        embedder.embed(SENTENCES, state="carry", batch_size=5)
    # With fewer sentences than rows, the other rows keep their state.
    embedder.reset_state()
    embedder.embed(SENTENCES[:4], "carry", 4)
    embedder.embed(SENTENCES[4:5], "carry", 4)
    (third,) = embedder.embed([["x"]] * 3, "carry", 4)[2:]
    embedder.reset_state()
    embedder.embed(SENTENCES[:4], "carry", 4)
    (alone,) = embedder.embed([["x"]] * 3, "carry", 4)[2:]
    np.testing.assert_allclose(third, alone, atol=1e-6)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_vectors_do_not_depend_on_other_sentences(embedder: Embedder, state: Any) -> None:
    together = embedder.embed(SENTENCES, state=state, batch_size=5)
    backwards = embedder.embed(SENTENCES[::-1], state=state, batch_size=7)[::-1]
    for sentence, one, other in zip(SENTENCES, together, backwards, strict=True):
        (alone,) = embedder.embed([sentence], state=state)
        assert one.shape == (3, len(sentence), 32)
        np.testing.assert_allclose(one, alone, atol=1e-6)
        np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_array_equal(alone, embedder.embed([sentence], state=state)[0])


def test_warm_state_equals_second_pass(embedder: Embedder) -> None:
    (warm,) = embedder.embed(SENTENCES[:1], state="warm")
    embedder.reset_state()
    first, second = embedder.embed(SENTENCES[:1] * 2, state="carry", batch_size=1)
    np.testing.assert_allclose(warm, second, atol=1e-6)
    (cold,) = embedder.embed(SENTENCES[:1], state="reset")
    np.testing.assert_allclose(first, cold, atol=1e-6)
    assert abs(warm - cold)[1:].max() > 1e-2
    np.testing.assert_allclose(warm[0], cold[0], atol=1e-6)  # the token encoder has no state


def test_layer_0_repeats_the_token_vector(embedder: Embedder) -> None:
    for array in embedder.embed(SENTENCES):
        np.testing.assert_array_equal(array[0, :, :16], array[0, :, 16:])


def test_upper_layers_depend_on_context(embedder: Embedder) -> None:
    river, money = embedder.embed(SENTENCES[:2])
    np.testing.assert_allclose(river[0, 2], money[0, 4], atol=1e-6)  # "bank" and "bank"
    assert abs(river[2, 2] - money[2, 4]).max() > 1e-2


@pytest.mark.parametrize("state", MODES)
@pytest.mark.parametrize(
    "sentences",
    [
        [],
        [[]],
        [[], ["a"], []],
        [["x" * 10_000]],
        [["😀", "\ud800", "\x00", "", " ", "e\u0301"]],
        [["<S>", "</S>", "<UNK>"]],
        [("a", "tuple")],
        [["w"] * 500],
    ],
)
def test_accepts_unusual_input(embedder: Embedder, sentences: Any, state: Any) -> None:
    embedder.reset_state()
    arrays = embedder.embed(sentences, state=state)
    assert [a.shape for a in arrays] == [(3, len(s), 32) for s in sentences]
    assert all(np.isfinite(a).all() and a.dtype == np.float32 for a in arrays)


@pytest.mark.parametrize(
    "sentences",
    [
        np.array([["The", "bank"], ["Hello", "!"]]),
        np.array([["The", "bank"], ["Hello", "!"]], dtype=object),
        np.array([["The", "bank"], ["Hello", "!"], None], dtype=object)[:2],
        [np.array(["The", "bank"]), np.array(["Hello", "!"], dtype=object)],
        [[np.str_("The"), np.str_("bank")], ("Hello", "!")],
    ],
)
def test_accepts_arrays_of_words(embedder: Embedder, sentences: Any) -> None:
    expected = embedder.embed([["The", "bank"], ["Hello", "!"]])
    for found in (embedder.embed(sentences), embedder.stream(sentences)):
        for array, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, other, atol=1e-6)


def test_accepts_arrays_of_raw_strings() -> None:
    torch.manual_seed(0)
    model = PretrainedBiLm(BiLm(tiny_model_config(), None), None, MosesTokenizer())
    for texts in (np.array(["It rains."]), np.array(["It rains."], dtype=object)):
        assert Embedder(model).embed(texts)[0].shape == (3, 3, 12)


@pytest.mark.parametrize("is_training", [True, False])
def test_keeps_the_mode_of_the_model(is_training: bool) -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(dropout=0.5), None).train(is_training)
    frozen = next(model.bilstm.parameters()).requires_grad_(False)
    embedder = Embedder(PretrainedBiLm(model))
    first, second = (embedder.embed([["a", "word"]])[0] for _ in range(2))
    np.testing.assert_allclose(first, second, atol=1e-6)  # without dropout
    assert all(module.training == is_training for module in model.modules())
    assert [p is frozen for p in model.parameters()] == [
        not p.requires_grad for p in model.parameters()
    ]
    with torch.no_grad():
        for parameter in model.bilstm.parameters():
            parameter.mul_(2.0)
    assert abs(embedder.embed([["a", "word"]])[0] - first).max() > 1e-3  # it shares the weights


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sentences": "one sentence"}, TypeError, "pass .sentence."),
        ({"sentences": ["raw text"]}, ValueError, "pass lists of words"),
        ({"sentences": [["a", 3]]}, TypeError, "sentence 0 contains 3"),
        ({"sentences": np.zeros((2, 2))}, TypeError, "sentence 0 contains 0.0"),
        ({"sentences": [["a"]], "state": "fresh"}, ValueError, "state is 'fresh'"),
        ({"sentences": [["a"]], "batch_size": 0}, ValueError, "batch_size is 0"),
    ],
)
def test_rejects_invalid_arguments(
    embedder: Embedder, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        embedder.embed(**arguments)


def test_tokenizes_raw_strings(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), None)
    PretrainedBiLm(model, None, MosesTokenizer()).save_pretrained(tmp_path / "model")
    embedder = Embedder.from_pretrained(tmp_path / "model")
    raw, words = embedder.embed(["It's raining.", ["It", "'s", "raining", "."]])
    np.testing.assert_allclose(raw, words, atol=1e-6)


def test_supports_word_ids_and_one_direction() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    model = BiLm(tiny_model_config(characters=None, bidirectional=False), len(vocabulary))
    embedder = Embedder(PretrainedBiLm(model, vocabulary))
    known, unknown, other = embedder.embed([["the"], ["zzz"], ["yyy"]])
    assert known.shape == (3, 1, 6) == (embedder.num_layers, 1, embedder.dim)
    # Rows of one product may round differently, depending on the processor.
    np.testing.assert_allclose(unknown, other, atol=1e-6)
    assert abs(known - unknown).max() > 1e-3
    # Three words and the two boundaries.
    assert embedder._encoded_words.num_encoded == len(embedder._encoded_words) == 5
    embedder.embed([["the", "zzz"]])
    assert embedder._encoded_words.num_encoded == 5
    with pytest.raises(CheckpointError, match="vocabulary file is needed"):
        Embedder(PretrainedBiLm(model))


@pytest.mark.parametrize("state", MODES)
def test_limits_do_not_change_the_numbers(embedder: Embedder, state: Any) -> None:
    sentences = [*SENTENCES, [], ["one"], [word for s in SENTENCES for word in s]]
    embedder.reset_state()
    expected = embedder.embed(sentences, state, 5)
    for batch_words, window_words in ((1, 1), (7, 40), (64, 10_000), (10_000, 64)):
        other = golden_embedder(batch_words=batch_words, window_words=window_words)
        for one, two in zip(other.stream(iter(sentences), state, 5), expected, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)


def test_stream_reads_one_window_ahead(embedder: Embedder) -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield ["word"] * 8

    stream = golden_embedder(window_words=100).stream(endless())
    for _ in range(50):
        assert next(stream).shape == (3, 8, 32)
    assert taken <= 61  # a window has ten sentences of 8 + 2 words; reading one more ends it


def test_rejects_invalid_limits_and_weights(embedder: Embedder) -> None:
    with pytest.raises(ValueError, match="batch_words is 0"):
        Limits(batch_words=0)
    with pytest.raises(ValueError, match="layers has 2 weights"):
        embedder.stream([["a"]], output=Output([0.5, 0.5]))
    with pytest.raises(ValueError, match="state is 'fresh'"):
        embedder.stream([["a"]], state="fresh")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "sentences_file", "weights_dir"),
    [
        ("bilm-tf", "lm_embeddings_sentences.json", "bilm-tf/tests/fixtures/model"),
        ("allennlp", "sentences.json", "allennlp/test_fixtures/elmo"),
    ],
)
def test_matches_published_fixtures(name: str, sentences_file: str, weights_dir: str) -> None:
    """Compare with the top layers that TensorFlow computed from tiny models, with carried state."""
    directory = shared_file("published_fixtures", *weights_dir.split("/"))
    columns = json.loads((directory / sentences_file).read_text(encoding="utf-8"))
    embedder = Embedder.from_published(directory / "options.json", directory / "lm_weights.hdf5")
    skip = embedder.pretrained.model.config.lstm.skip_connections
    assert skip == (name == "allennlp")
    rows = len(columns)
    sentences = [column[i].split() for i in range(len(columns[0])) for column in columns]
    ours = embedder.embed(sentences, state="carry", batch_size=rows)
    worst, compared = 0.0, 0
    for row in range(rows):
        with h5py.File(directory / f"lm_embeddings_{row}.hdf5") as file:
            for i in range(len(columns[0])):
                forward, backward = file[str(i)][()]  # (tokens, 16) each
                top = ours[i * rows + row][-1]
                worst = max(worst, abs(top - np.concatenate([forward, backward], axis=1)).max())
                compared += top.size
    assert compared > 10_000
    assert worst < 1e-5
