from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bilm import Elmo
from bilm.embedding.embedder import Embedder, StateMode
from bilm.embedding.output import Output, mix_weights
from bilm.errors import CheckpointError, ConfigError
from bilm.model.scalar_mix import ScalarMix
from bilm.pretrained.model_directory import PretrainedBiLm
from tests.bilm.embedding.elmo_models import SENTENCES, golden, tiny
from tests.bilm.embedding.golden_model import SENTENCES as GOLDEN_SENTENCES
from tests.conftest import GOLDEN

WIDTH = max(map(len, SENTENCES))
LENGTHS = [len(sentence) for sentence in SENTENCES]


def weights_of(elmo: Elmo) -> dict[str, Tensor]:
    return {name: w.detach().clone() for name, w in elmo.model.named_parameters()}


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_shapes_and_mask(num_outputs: int, trainable: bool) -> None:
    elmo = Elmo(tiny(), num_outputs, trainable=trainable)
    outputs, mask = elmo(SENTENCES)
    assert len(outputs) == num_outputs
    assert {tuple(x.shape) for x in outputs} == {(len(SENTENCES), WIDTH, elmo.dim)}
    assert elmo.dim == 12
    assert mask.dtype == torch.bool
    assert mask.sum(dim=1).tolist() == LENGTHS
    assert all(mask[i, :length].all() for i, length in enumerate(LENGTHS))
    assert all((x[~mask] == 0).all() for x in outputs)


@pytest.mark.parametrize("state", ["reset", "warm"])
@pytest.mark.parametrize("trainable", [False, True])
def test_layers_equal_those_of_the_embedder(trainable: bool, state: StateMode) -> None:
    elmo = Elmo(golden(), trainable=trainable, state=state).eval()
    layers, mask = elmo.layers(GOLDEN_SENTENCES)
    expected = Embedder(golden(), device="cpu").embed(GOLDEN_SENTENCES, state)
    stacked = torch.stack(layers).detach().numpy()
    for i, array in enumerate(expected):
        np.testing.assert_allclose(stacked[:, i, : array.shape[1]], array, atol=1e-6)
    assert mask.sum() == sum(map(len, GOLDEN_SENTENCES))


def test_outputs_equal_mixes_of_the_embedder() -> None:
    elmo = Elmo(golden(), num_outputs=2, dropout=0.0)
    with torch.no_grad():
        elmo.mixes[0].weights.copy_(torch.tensor([0.3, -1.0, 2.0]))
        elmo.mixes[1].gamma.fill_(-0.5)
    outputs, _ = elmo(GOLDEN_SENTENCES)
    embedder = Embedder(golden(), device="cpu")
    for mix, output in zip(elmo.mixes, outputs, strict=True):
        expected = embedder.embed(GOLDEN_SENTENCES, output=Output(mix_weights(mix)))
        for i, array in enumerate(expected):
            np.testing.assert_allclose(output[i, : len(array)].detach(), array, atol=1e-6)
    assert (outputs[0] - outputs[1]).abs().max() > 1e-2  # independent


def test_carried_state_matches_the_original_implementation() -> None:
    reference = np.load(GOLDEN / "embeddings.npz")
    elmo = Elmo(golden(), state="carry")
    for _ in range(2):
        elmo.reset_state()
        for number in range(3):
            sentences = GOLDEN_SENTENCES[4 * number : 4 * number + 4]
            layers, _ = elmo.layers(sentences)
            for i, sentence in enumerate(sentences):
                ours = torch.stack(layers)[:, i, : len(sentence)]
                expected = reference[f"batch{number}/layers"][i, :, : len(sentence)]
                np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("trainable", [False, True])
def test_carried_state_allows_any_number_of_rows(trainable: bool) -> None:
    elmo = Elmo(tiny(), state="carry", trainable=trainable).eval()
    (a, b, c), batch = SENTENCES[:3], SENTENCES[3:]
    elmo([b])
    elmo([a, b, c])  # two more rows, which start from zero
    (many,) = elmo([a, b, c]).outputs
    elmo.reset_state()
    for sentences in ([b], [a, b, c], batch[:1]):
        elmo(sentences)
    (few,) = elmo([a, b, c]).outputs  # row 0 has read another sentence; rows 1 and 2 have not
    torch.testing.assert_close(few[1:], many[1:], atol=1e-6, rtol=1e-6)
    assert (few[0] - many[0]).abs().max() > 1e-4
    few.sum().backward()  # the carried state has no graph
    elmo([a])[0][0].sum().backward()


def test_keeps_boundaries() -> None:
    elmo, inner = (Elmo(tiny(), dropout=0.0, keep_boundaries=keep) for keep in (True, False))
    (output,), mask = elmo(SENTENCES)
    assert output.shape == (len(SENTENCES), WIDTH + 2, elmo.dim)
    assert mask.sum(dim=1).tolist() == [length + 2 for length in LENGTHS]
    (expected,), inner_mask = inner(SENTENCES)
    torch.testing.assert_close(output[:, 1:-1][inner_mask], expected[inner_mask])
    layers, _ = elmo.layers([["<S>"], ["</S>"]])
    first = torch.stack([layer[:, 0] for layer in layers])  # (layers, sentences, dim)
    torch.testing.assert_close(layers[0][0, 0], layers[0][0, 1])  # the encoder's vector of <S>
    torch.testing.assert_close(layers[0][0, 2], layers[0][1, 1])
    half = elmo.dim // 2  # forward, <S> is read before the words
    torch.testing.assert_close(first[:, 0, :half], first[:, 1, :half])


def test_result_does_not_depend_on_other_sentences() -> None:
    elmo = Elmo(tiny(), dropout=0.0)
    (together,), _ = elmo(SENTENCES)
    for i, sentence in enumerate(SENTENCES):
        (alone,), _ = elmo([sentence])
        torch.testing.assert_close(together[i, : len(sentence)], alone[0], atol=1e-6, rtol=1e-6)


def test_layer_norm_excludes_padding_and_boundaries() -> None:
    elmo = Elmo(tiny(), layer_norm=True, dropout=0.0, initial_weights=[-50.0, -50.0, 50.0])
    (output,), mask = elmo(SENTENCES)
    words = output[mask]
    torch.testing.assert_close(words.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(words.var(correction=0), torch.tensor(1.0), atol=1e-4, rtol=0)
    assert isinstance(elmo.mixes[0], ScalarMix)
    with_boundaries = Elmo(
        tiny(),
        layer_norm=True,
        dropout=0.0,
        keep_boundaries=True,
        initial_weights=[-50.0, -50.0, 50.0],
    )
    (kept,), kept_mask = with_boundaries(SENTENCES)
    torch.testing.assert_close(kept[:, 1:-1][mask], words, atol=1e-5, rtol=1e-5)
    assert (kept[kept_mask] != 0).all()


@pytest.mark.parametrize("keep_boundaries", [False, True])
def test_layers_are_zero_at_padding(keep_boundaries: bool) -> None:
    layers, mask = Elmo(tiny(), keep_boundaries=keep_boundaries).layers(SENTENCES)
    assert not mask.all()
    assert all((layer[~mask] == 0).all() and (layer[mask] != 0).any() for layer in layers)


def test_rejects_batches_of_other_preparers() -> None:
    elmo, other = Elmo(tiny()), Elmo(tiny(), keep_boundaries=True)
    with pytest.raises(ConfigError, match=r"keep_boundaries=True, but this module has .*=False"):
        elmo(other.prepare(SENTENCES))
    with pytest.raises(ConfigError, match=r"keep_boundaries=False, but this module has .*=True"):
        other(elmo.prepare(SENTENCES))
    batch = elmo.prepare(SENTENCES)
    with pytest.raises(TypeError, match=r"words of the batch is of type torch.float32; pass the"):
        elmo(batch._replace(words=batch.words.float()))
    with pytest.raises(TypeError, match=r"mask of the batch is of type torch.int64; pass the"):
        elmo(batch._replace(mask=batch.mask.long()))


def test_penalty_of_weights_that_are_not_trained_is_zero() -> None:
    elmo = Elmo(tiny(), num_outputs=2, penalty=0.1, initial_weights=[1.0, 2.0, 3.0])
    elmo.mixes[0].requires_grad_(False)
    torch.testing.assert_close(elmo.penalty(), torch.tensor(0.1 * 14.0))
    elmo.requires_grad_(False)
    assert elmo.penalty().item() == 0.0


def test_dropout_only_in_training() -> None:
    elmo = Elmo(tiny(), num_outputs=2, dropout=0.5)
    torch.manual_seed(0)
    (one, other), mask = elmo(SENTENCES)
    share = float((one[mask] == 0).float().mean())
    assert 0.3 < share < 0.7
    assert not torch.equal(one == 0, other == 0)
    elmo.eval()
    torch.testing.assert_close(elmo(SENTENCES)[0][0], elmo(SENTENCES)[0][1])
    assert (elmo(SENTENCES)[0][0][mask] != 0).all()


def test_dropout_inside_the_model_only_if_trainable() -> None:
    frozen, trainable = (
        Elmo(tiny(dropout=0.5), trainable=value, dropout=0.0) for value in (False, True)
    )
    torch.manual_seed(0)
    assert torch.equal(frozen(SENTENCES)[0][0], frozen(SENTENCES)[0][0])
    assert not torch.equal(trainable(SENTENCES)[0][0], trainable(SENTENCES)[0][0])
    torch.testing.assert_close(
        trainable.eval()(SENTENCES)[0][0], frozen(SENTENCES)[0][0], atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize("trainable", [False, True])
def test_training_changes_the_weights_only_if_trainable(trainable: bool) -> None:
    pretrained = tiny()
    elmo = Elmo(pretrained, trainable=trainable)
    before, mixes = weights_of(elmo), elmo.mixes[0].weights.detach().clone()
    given = {name: w.detach().clone() for name, w in pretrained.model.named_parameters()}
    optimizer = torch.optim.Adam(elmo.parameters(), lr=0.01)
    (output,), _ = elmo(SENTENCES)
    (output.square().sum() + elmo.penalty()).backward()
    optimizer.step()
    assert not torch.equal(elmo.mixes[0].weights, mixes)
    changed = {name for name, w in weights_of(elmo).items() if not torch.equal(w, before[name])}
    assert changed == (set(before) if trainable else set())
    assert "softmax.weight" not in before
    for name, weight in pretrained.model.named_parameters():  # the given model is unchanged
        assert torch.equal(weight, given[name])
        assert weight.requires_grad
    num_mix_weights = 3 + 1
    count = sum(p.numel() for p in elmo.parameters())
    assert (count > num_mix_weights) if trainable else (count == num_mix_weights)


def test_parameter_groups_have_lower_rates_for_lower_layers() -> None:
    elmo = Elmo(tiny(), trainable=True)
    groups = elmo.parameter_groups(0.1, decay=0.5)
    assert [group["name"] for group in groups] == [
        "mixes",
        "lstm layer 1",
        "lstm layer 0",
        "token encoder",
    ]
    assert [group["lr"] for group in groups] == pytest.approx([0.1, 0.05, 0.025, 0.0125])
    ids = [id(weight) for group in groups for weight in group["params"]]
    assert sorted(ids) == sorted(id(weight) for weight in elmo.parameters())
    optimizer = torch.optim.AdamW(groups)
    elmo(SENTENCES)[0][0].sum().backward()
    optimizer.step()
    assert [group["name"] for group in Elmo(tiny()).parameter_groups(0.1)] == ["mixes"]


def test_penalty_is_on_the_weights_of_all_mixes() -> None:
    elmo = Elmo(tiny(), num_outputs=2, penalty=0.1)
    with torch.no_grad():
        elmo.mixes[0].weights.fill_(2.0)
        elmo.mixes[1].gamma.fill_(9.0)
    torch.testing.assert_close(elmo.penalty(), torch.tensor(0.1 * 3 * 4.0))
    elmo.penalty().backward()
    assert elmo.mixes[0].gamma.grad is None


@pytest.mark.parametrize("sentences", [[], [[]], [[], []]])
@pytest.mark.parametrize("trainable", [False, True])
def test_accepts_batches_without_words(sentences: Any, trainable: bool) -> None:
    elmo = Elmo(tiny(), trainable=trainable)
    (output,), mask = elmo(sentences)
    assert output.shape == (len(sentences), 0, elmo.dim)
    assert mask.shape == (len(sentences), 0)
    output.sum().backward()


def test_reads_words_raw_text_arrays_and_prepared_batches(tmp_path: Path) -> None:
    pretrained = tiny()
    pretrained.save_pretrained(tmp_path / "model")
    elmo = Elmo(str(tmp_path / "model"), dropout=0.0)  # as PretrainedBiLm.open reads it
    (expected,), _ = elmo([["the", "bank"]])
    for sentences in (["the bank"], np.array([["the", "bank"]]), elmo.prepare(["the bank"])):
        assert torch.equal(elmo(sentences)[0][0], expected)
    with pytest.raises(ValueError, match="sentence 0 is a string, but this model has no tokenizer"):
        Elmo(golden())(["the bank"])
    with pytest.raises(TypeError, match="Elmo takes a list of sentences"):
        elmo("the bank")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_models_of_word_ids_and_of_one_direction(bidirectional: bool) -> None:
    pretrained = tiny(characters=None, bidirectional=bidirectional)
    elmo = Elmo(pretrained, trainable=True, dropout=0.0)
    expected = Embedder(pretrained, device="cpu").embed(SENTENCES, output=Output("average"))
    (output,), _ = elmo(SENTENCES)
    for i, array in enumerate(expected):
        np.testing.assert_allclose(output[i, : len(array)].detach(), array, atol=1e-6)
    output.sum().backward()
    torch.optim.Adam(elmo.parameters()).step()  # rejects sparse gradients
    with pytest.raises(CheckpointError, match="its vocabulary file is needed"):
        Elmo(PretrainedBiLm(pretrained.model))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_outputs": 0}, "num_outputs is 0; it must be at least 1"),
        ({"state": "keep"}, "state is 'keep'; it must be one of"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ({"penalty": -1.0}, "penalty is -1.0; it must be finite and at least 0"),
        ({"trainable": True, "save_frozen": True}, "remove save_frozen"),
    ],
)
def test_rejects_invalid_options(options: Any, message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        Elmo(tiny(), **options)
    with pytest.raises(ConfigError, match="is neither a run"):
        Elmo("no-such-model")
