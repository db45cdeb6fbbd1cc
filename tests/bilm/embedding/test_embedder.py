from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bilm.embedding.embedder import Embedder, Limits
from bilm.embedding.output import Output, mix_weights
from bilm.errors import CheckpointError
from bilm.model.language_model import BiLm
from bilm.model.scalar_mix import ScalarMix
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import MosesTokenizer
from bilm.text.vocabulary import Vocabulary
from tests.conftest import GOLDEN, shared_file, tiny_model_config

SENTENCES = [
    line.split() for line in (GOLDEN / "sentences.txt").read_text(encoding="utf-8").splitlines()
]
MODES = ("reset", "warm", "carry")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder.from_published(GOLDEN / "options.json", GOLDEN / "weights.hdf5")


def test_carry_is_the_originals_behaviour(embedder: Embedder) -> None:
    golden = np.load(GOLDEN / "embeddings.npz")
    embedder.reset_state()
    ours = embedder.embed(SENTENCES, state="carry", batch_size=4)
    for i, array in enumerate(ours):
        expected = golden[f"batch{i // 4}/layers"][i % 4, :, : len(SENTENCES[i])]
        np.testing.assert_allclose(array, expected, atol=1e-5)


def test_carry_goes_on_from_call_to_call(embedder: Embedder) -> None:
    embedder.reset_state()
    at_once = embedder.embed(SENTENCES, state="carry", batch_size=4)
    embedder.reset_state()
    parts = [embedder.embed(SENTENCES[i : i + 4], "carry", 4) for i in range(0, 12, 4)]
    for one, other in zip(at_once, [a for part in parts for a in part], strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="4 rows are being carried"):
        embedder.embed(SENTENCES, state="carry", batch_size=5)
    # Fewer sentences than rows: the other rows keep what they remember.
    embedder.reset_state()
    embedder.embed(SENTENCES[:4], "carry", 4)
    embedder.embed(SENTENCES[4:5], "carry", 4)
    (third,) = embedder.embed([["x"]] * 3, "carry", 4)[2:]
    embedder.reset_state()
    embedder.embed(SENTENCES[:4], "carry", 4)
    (alone,) = embedder.embed([["x"]] * 3, "carry", 4)[2:]
    np.testing.assert_allclose(third, alone, atol=1e-6)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_a_sentence_has_the_same_vectors_whatever_stands_beside_it(
    embedder: Embedder, state: Any
) -> None:
    together = embedder.embed(SENTENCES, state=state, batch_size=5)
    backwards = embedder.embed(SENTENCES[::-1], state=state, batch_size=7)[::-1]
    for sentence, one, other in zip(SENTENCES, together, backwards, strict=True):
        (alone,) = embedder.embed([sentence], state=state)
        assert one.shape == (3, len(sentence), 32)
        np.testing.assert_allclose(one, alone, atol=1e-6)
        np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_array_equal(alone, embedder.embed([sentence], state=state)[0])


def test_warm_is_the_second_reading(embedder: Embedder) -> None:
    (warm,) = embedder.embed(SENTENCES[:1], state="warm")
    embedder.reset_state()
    first, second = embedder.embed(SENTENCES[:1] * 2, state="carry", batch_size=1)
    np.testing.assert_allclose(warm, second, atol=1e-6)
    (cold,) = embedder.embed(SENTENCES[:1], state="reset")
    np.testing.assert_allclose(first, cold, atol=1e-6)
    assert abs(warm - cold)[1:].max() > 1e-2
    np.testing.assert_array_equal(warm[0], cold[0])  # the token encoder sees no state


def test_layer_0_is_the_token_vector_twice(embedder: Embedder) -> None:
    for array in embedder.embed(SENTENCES):
        np.testing.assert_array_equal(array[0, :, :16], array[0, :, 16:])


def test_context_matters(embedder: Embedder) -> None:
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
def test_odd_input_does_not_crash(embedder: Embedder, sentences: Any, state: Any) -> None:
    embedder.reset_state()
    arrays = embedder.embed(sentences, state=state)
    assert [a.shape for a in arrays] == [(3, len(s), 32) for s in sentences]
    assert all(np.isfinite(a).all() and a.dtype == np.float32 for a in arrays)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sentences": "one sentence"}, TypeError, "pass .sentence."),
        ({"sentences": ["raw text"]}, ValueError, "pass lists of words"),
        ({"sentences": [["a", 3]]}, TypeError, "sentence 0 has 3"),
        ({"sentences": [["a"]], "state": "fresh"}, ValueError, "state is 'fresh'"),
        ({"sentences": [["a"]], "batch_size": 0}, ValueError, "batch_size is 0"),
    ],
)
def test_bad_calls(
    embedder: Embedder, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        embedder.embed(**arguments)


def test_raw_strings_where_the_tokeniser_is_known(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), None)
    PretrainedBiLm(model, None, MosesTokenizer()).save_pretrained(tmp_path / "model")
    embedder = Embedder.from_pretrained(tmp_path / "model")
    raw, words = embedder.embed(["It's raining.", ["It", "'s", "raining", "."]])
    np.testing.assert_allclose(raw, words, atol=1e-6)


def test_word_ids_and_one_direction() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    model = BiLm(tiny_model_config(characters=None, bidirectional=False), len(vocabulary))
    embedder = Embedder(PretrainedBiLm(model, vocabulary))
    known, unknown, other = embedder.embed([["the"], ["zzz"], ["yyy"]])
    assert known.shape == (3, 1, 6) == (embedder.num_layers, 1, embedder.dim)
    # Rows of one product may round differently, depending on the processor.
    np.testing.assert_allclose(unknown, other, atol=1e-6)
    assert abs(known - unknown).max() > 1e-3
    assert embedder._vectors.num_encoded == len(embedder._vectors) == 5  # borders too
    embedder.embed([["the", "zzz"]])
    assert embedder._vectors.num_encoded == 5
    with pytest.raises(CheckpointError, match="vocabulary file is needed"):
        Embedder(PretrainedBiLm(model))


def with_limits(embedder: Embedder, **limits: int) -> Embedder:
    return Embedder(embedder.pretrained, Limits(**limits))


@pytest.mark.parametrize("state", MODES)
def test_small_batches_windows_and_chunks_give_the_same_numbers(
    embedder: Embedder, state: Any
) -> None:
    sentences = [*SENTENCES, [], ["one"], [word for s in SENTENCES for word in s]]
    embedder.reset_state()
    expected = embedder.embed(sentences, state, 5)
    for batch_words, window_words in ((1, 1), (7, 40), (64, 10_000), (10_000, 64)):
        other = with_limits(embedder, batch_words=batch_words, window_words=window_words)
        for one, two in zip(other.stream(iter(sentences), state, 5), expected, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_stream_reads_no_further_than_its_window(embedder: Embedder) -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield ["word"] * 8

    stream = with_limits(embedder, window_words=100).stream(endless())
    for _ in range(50):
        assert next(stream).shape == (3, 8, 32)
    assert taken <= 61  # ten sentences of 8 + 2 words are a window, and one more closes it


def test_a_word_is_encoded_once_and_the_table_is_bounded(embedder: Embedder) -> None:
    cached = with_limits(embedder)
    first = cached.embed(SENTENCES)
    distinct = {word for sentence in SENTENCES for word in sentence} | {"<S>", "</S>"}
    assert cached._vectors.num_encoded == len(cached._vectors) == len(distinct)
    again = cached.embed(SENTENCES[::-1])[::-1]
    assert cached._vectors.num_encoded == len(distinct)
    # A table too small for the text: words are dropped and encoded again, the numbers stay.
    small = with_limits(embedder, batch_words=16, window_words=64, cached_words=12)
    for _ in range(2):
        for one, two, other in zip(small.embed(SENTENCES), first, again, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
            np.testing.assert_allclose(other, two, atol=1e-6)
    assert small._vectors.num_encoded > len(distinct)
    assert len(small._vectors) <= 2 * 16 + 12


def test_weights_that_change_are_noticed(embedder: Embedder) -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), None)
    ours = Embedder(PretrainedBiLm(model))
    (before,) = ours.embed([["a", "word"]])
    with torch.no_grad():
        next(model.encoder.parameters()).mul_(2.0)
    (after,) = ours.embed([["a", "word"]])
    (fresh,) = Embedder(PretrainedBiLm(model)).embed([["a", "word"]])
    assert abs(before[0] - after[0]).max() > 1e-3
    np.testing.assert_array_equal(after, fresh)


@pytest.mark.parametrize("limits", [{}, {"batch_words": 9, "window_words": 30}])
@pytest.mark.parametrize("pool", ["none", "mean", "max", "mean_max"])
@pytest.mark.parametrize("layers", ["all", "average", "top", (0.5, -1.0, 2.0)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_outputs_are_functions_of_all_layers(
    embedder: Embedder, layers: Any, pool: Any, dtype: Any, limits: dict[str, int]
) -> None:
    sentences = [*SENTENCES, ["one"], []]
    weights = {"average": [1 / 3] * 3, "top": [0, 0, 1]}
    output = Output(layers, pool, dtype)
    ours = with_limits(embedder, **limits).embed(sentences, output=output)
    for array, whole in zip(ours, embedder.embed(sentences), strict=True):
        words = whole.shape[1]
        expected = whole.astype(np.float64)
        if layers != "all":
            expected = np.tensordot(weights.get(layers, layers), expected, axes=1)
        if pool != "none":
            filled = expected if words else np.zeros((*expected.shape[:-2], 1, 32))
            parts = {"mean": filled.mean(axis=-2), "max": filled.max(axis=-2)}
            names = ("mean", "max") if pool == "mean_max" else (pool,)
            expected = np.concatenate([parts[name] for name in names], axis=-1)
        assert array.shape == expected.shape == output.shape(3, words, 32)
        assert array.dtype == dtype
        np.testing.assert_allclose(array, expected, atol=2e-6 if dtype == "float32" else 4e-3)


def test_the_weights_of_a_scalar_mix(embedder: Embedder) -> None:
    mix = ScalarMix(3, initial_weights=[0.3, -1.0, 2.0])
    mix.gamma.data.fill_(1.7)
    (mixed,) = embedder.embed(SENTENCES[:1], output=Output(mix_weights(mix)))
    (layers,) = embedder.embed(SENTENCES[:1])
    expected = mix(torch.from_numpy(layers)).detach().numpy()
    np.testing.assert_allclose(mixed, expected, atol=1e-6)
    with pytest.raises(ValueError, match="layer_norm"):
        mix_weights(ScalarMix(3, layer_norm=True))


def test_pooled_memory_does_not_grow_with_the_words(embedder: Embedder) -> None:
    """One text of 1,500 and of 15,000 words: numpy and Python alike are traced."""
    small = with_limits(embedder, batch_words=512)
    peaks = []
    for size in (1_500, 15_000):
        words = ["a", "word"] * (size // 2)
        small.embed([words[:1_500]], output=Output(pool="mean_max"))
        tracemalloc.start()
        small.embed([words], output=Output(pool="mean_max"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    whole = 3 * 15_000 * 32 * 4
    assert peaks[1] - peaks[0] < whole / 10  # the list of words itself may grow


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": "both"}, "layers is 'both'"),
        ({"layers": [1.0, float("nan"), 0.0]}, "finite"),
        ({"pool": "sum"}, "pool is 'sum'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
    ],
)
def test_bad_outputs(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Output(**arguments)


def test_bad_limits_and_weights(embedder: Embedder) -> None:
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
def test_published_fixtures(name: str, sentences_file: str, weights_dir: str) -> None:
    """Tiny published models and what TensorFlow made of them: the top layer, state carried."""
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
