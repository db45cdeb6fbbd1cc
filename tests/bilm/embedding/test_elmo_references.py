"""`Elmo` against values of the original implementations, and against NumPy.

`published_fixtures` has tiny models of bilm-tf and AllenNLP with the vectors that TensorFlow
computed: of single words, and of the top layer with carried state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch

from bilm import Elmo
from bilm.embedding.output import Output
from bilm.pretrained.model_directory import PretrainedBiLm
from tests.bilm.embedding.elmo_models import SENTENCES, golden
from tests.bilm.embedding.golden_model import SENTENCES as GOLDEN_SENTENCES
from tests.bilm.embedding.golden_model import golden_embedder
from tests.conftest import GOLDEN, shared_file

Array = npt.NDArray[np.floating[Any]]

ALLENNLP = "allennlp/test_fixtures/elmo"
FIXTURES = {
    "bilm-tf": ("bilm-tf/tests/fixtures/model", "lm_embeddings_sentences.json"),
    "allennlp": (ALLENNLP, "sentences.json"),
}
MIXES = (([0.1, 0.3, 0.5], 1.1), ([0.2, 0.4, -0.6], -0.88))  # w and gamma


def fixture(directory: str) -> tuple[Path, PretrainedBiLm]:
    path = shared_file("published_fixtures", *directory.split("/"))
    return path, PretrainedBiLm.from_published(path / "options.json", path / "lm_weights.hdf5")


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


class NumPyLstm:
    """One direction of a published biLM in NumPy, whose layers keep their states."""

    def __init__(self, directory: Path, direction: int) -> None:
        options = json.loads((directory / "options.json").read_text("utf-8"))["lstm"]
        self.clips = (options["cell_clip"], options["proj_clip"])
        self.skip = options["use_skip_connections"]
        with h5py.File(directory / "lm_weights.hdf5") as file:
            cells = file[f"RNN_{direction}/RNN/MultiRNNCell"]
            names = ("W_0", "B", "W_P_0")
            self.weights = [
                [cells[f"Cell{layer}/LSTMCell/{name}"][()].astype(np.float64) for name in names]
                for layer in range(options["n_layers"])
            ]
        self.states = [
            (np.zeros(options["dim"]), np.zeros(options["projection_dim"])) for _ in self.weights
        ]

    def layers(self, inputs: Array) -> list[Array]:
        """Return the output (time, dim) of each layer for the vectors of one sentence."""
        results = [inputs]
        for layer in range(len(self.weights)):
            outputs = np.stack([self._step(layer, x) for x in results[-1]])
            results.append(outputs + results[-1] if self.skip and layer > 0 else outputs)
        return results[1:]

    def _step(self, layer: int, x: Array) -> Array:
        kernel, bias, projection = self.weights[layer]
        cell, hidden = self.states[layer]
        gates = np.concatenate([x, hidden]) @ kernel + bias
        entry, new, forget, exit_ = np.split(gates, 4)
        cell = sigmoid(forget + 1) * cell + sigmoid(entry) * np.tanh(new)
        cell = np.clip(cell, -self.clips[0], self.clips[0])
        hidden = (sigmoid(exit_) * np.tanh(cell)) @ projection
        hidden = np.clip(hidden, -self.clips[1], self.clips[1])
        self.states[layer] = (cell, hidden)
        return hidden


def test_token_embeddings_equal_those_of_allennlp() -> None:
    directory, pretrained = fixture(ALLENNLP)
    words = (directory / "vocab_test.txt").read_text("utf-8").split("\n")
    with h5py.File(directory / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][()]  # (words, 16)
    assert len(words) == len(expected) > 400
    layers, mask = Elmo(pretrained).layers([words[i : i + 50] for i in range(0, len(words), 50)])
    ours = layers[0][mask]  # (words, 32)
    np.testing.assert_allclose(ours, np.concatenate([expected, expected], axis=1), atol=1e-6)


@pytest.mark.parametrize("name", FIXTURES)
def test_all_layers_equal_numpy_and_the_top_layer_equals_tensorflow(name: str) -> None:
    directory, pretrained = fixture(FIXTURES[name][0])
    rows = json.loads((directory / FIXTURES[name][1]).read_text("utf-8"))
    elmo = Elmo(pretrained, state="carry", keep_boundaries=True)
    reference = [[NumPyLstm(directory, direction) for direction in range(2)] for _ in rows]
    files = [h5py.File(directory / f"lm_embeddings_{row}.hdf5") for row in range(len(rows))]
    for number in range(len(rows[0])):
        sentences = [row[number].split() for row in rows]
        layers, mask = elmo.layers(sentences)
        assert mask.sum(dim=1).tolist() == [len(sentence) + 2 for sentence in sentences]
        for row, file in enumerate(files):
            ours = torch.stack(layers)[:, row, mask[row]].numpy()  # (layers, tokens, 32)
            words = ours[0, :, :16]
            forward = reference[row][0].layers(words)
            backward = [own[::-1] for own in reference[row][1].layers(words[::-1])]
            expected = np.concatenate([forward, backward], axis=2)
            np.testing.assert_allclose(ours[1:], expected, atol=1e-5)
            top = np.concatenate(list(file[str(number)][()]), axis=1)  # (words, 32)
            np.testing.assert_allclose(ours[-1, 1:-1], top, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_mixes_equal_the_original_implementation(layer_norm: bool) -> None:
    reference = np.load(GOLDEN / "embeddings.npz")
    options: dict[str, Any] = {"dropout": 0.0, "layer_norm": layer_norm}
    elmo = Elmo(golden(), state="carry", initial_weights=reference["mix_w"], **options)
    elmo.mixes[0].gamma.data.fill_(float(reference["mix_gamma"]))
    for number in range(3):
        (output,), mask = elmo(GOLDEN_SENTENCES[4 * number : 4 * number + 4])
        expected = reference[f"batch{number}/mix{'_layer_norm' if layer_norm else ''}"]
        assert np.array_equal(mask, reference[f"batch{number}/mask"])
        np.testing.assert_allclose(output.detach()[mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_two_mixes_equal_numpy(layer_norm: bool) -> None:
    elmo = Elmo(golden(), 2, dropout=0.0, layer_norm=layer_norm, penalty=1.0)
    names = [name for name, _ in elmo.named_parameters()]
    assert names == [f"mixes.{i}.{name}" for i in range(2) for name in ("weights", "gamma")]
    for mix, (weights, gamma) in zip(elmo.mixes, MIXES, strict=True):
        mix.weights.data.copy_(torch.tensor(weights))
        mix.gamma.data.fill_(gamma)
    outputs, mask = elmo(SENTENCES)
    assert mask.tolist() == [[i < len(sentence) for i in range(8)] for sentence in SENTENCES]
    words = mask.numpy()
    layers = torch.stack(elmo.layers(SENTENCES)[0]).double().numpy()  # (layers, sentences, 8, 32)
    for output, (weights, gamma) in zip(outputs, MIXES, strict=True):
        shares = np.exp(weights) / np.exp(weights).sum()
        expected = np.zeros(output.shape)
        for share, layer in zip(shares, layers, strict=True):
            own = (layer - layer[words].mean()) / layer[words].std() if layer_norm else layer
            expected += share * own
        expected = gamma * expected * words[:, :, None]  # zero at padding
        np.testing.assert_allclose(output.detach(), expected, atol=1e-5)
    squares = [np.square(weights).sum() for weights, _ in MIXES]
    assert elmo.penalty().item() == pytest.approx(sum(squares))


def test_top_layer_only() -> None:
    elmo = Elmo(golden(), dropout=0.0, initial_weights=[-1e9, -1e9, 0.0])
    elmo.mixes.requires_grad_(False)
    (output,), mask = elmo(SENTENCES)
    assert torch.equal(output[mask], elmo.layers(SENTENCES)[0][-1][mask])
    assert not output[~mask].any()
    assert not output.requires_grad
    for i, array in enumerate(golden_embedder().embed(SENTENCES, output=Output("top"))):
        np.testing.assert_allclose(output[i, : len(array)], array, atol=1e-6)


def test_carries_the_state_over_batches_of_different_sizes() -> None:
    """Rows that a smaller batch does not have keep their states until they are read again."""
    batches = [GOLDEN_SENTENCES[:4], GOLDEN_SENTENCES[4:6], GOLDEN_SENTENCES[6:11]]
    rows: list[list[list[str]]] = [[] for _ in range(5)]  # the sentences that each row reads
    for batch in batches:
        for row, sentence in enumerate(batch):
            rows[row].append(sentence)
    elmo = Elmo(golden(), state="carry")
    found: list[list[Array]] = [[] for _ in rows]
    for batch in batches:
        layers, mask = elmo.layers(batch)
        assert mask.sum(dim=1).tolist() == list(map(len, batch))
        for row in range(len(batch)):
            found[row].append(torch.stack(layers)[:, row, mask[row]].numpy())
    for own, sentences in zip(found, rows, strict=True):
        alone = golden_embedder().embed(sentences, state="carry", batch_size=1)
        for ours, expected in zip(own, alone, strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-6)
    without = golden_embedder().embed(batches[1])
    assert abs(found[0][1] - without[0]).max() > 1e-3  # the state has an effect
