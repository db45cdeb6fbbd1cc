"""`Elmo` inside of a user's model: conversions, copies, files, threads, processes."""

from __future__ import annotations

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from bilm import Elmo
from bilm.embedding.prepared import PreparedBatch
from bilm.embedding.sentence_reader import StateMode
from bilm.errors import ConfigError
from bilm.text.tokenizers import MosesTokenizer
from tests.bilm.distributed.rank_scripts import assert_equal_on_ranks
from tests.bilm.embedding.elmo_models import SENTENCES, Tagger, tiny


def frozen_names(module: nn.Module) -> list[str]:
    return [name for name in module.state_dict() if "bilm." in name]


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype, trainable: bool) -> None:
    elmo = Elmo(tiny(), dropout=0.0, trainable=trainable)
    layer = nn.Linear(elmo.dim, 3)
    expected = elmo(SENTENCES).outputs[0]
    with torch.autocast("cpu", dtype):
        (words,), _ = elmo(SENTENCES)
        loss = layer(words).float().square().sum()
    assert words.dtype == torch.float32
    torch.testing.assert_close(words, expected, atol=0.1, rtol=0.1)
    assert not torch.equal(words, expected)  # products are computed in the lower precision
    loss.backward()
    assert all(weight.grad is not None for weight in elmo.parameters())


@pytest.mark.parametrize("trainable", [False, True])
def test_double(trainable: bool) -> None:
    elmo = Elmo(tiny(), dropout=0.0, trainable=trainable)
    expected = elmo(SENTENCES).outputs[0]
    (output,), _ = elmo.double()(SENTENCES)
    assert output.dtype == torch.float64
    assert {weight.dtype for weight in elmo.model.parameters()} == {torch.float64}
    torch.testing.assert_close(output.float(), expected, atol=1e-6, rtol=1e-5)
    assert elmo.float()(SENTENCES).outputs[0].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_changes_the_outputs_but_not_the_frozen_weights(dtype: torch.dtype) -> None:
    elmo = Elmo(tiny(), dropout=0.0)
    expected = elmo(SENTENCES).outputs[0]
    (output,), _ = elmo.to(dtype)(SENTENCES)
    assert output.dtype == dtype
    assert {weight.dtype for weight in elmo.model.parameters()} == {torch.float32}
    torch.testing.assert_close(output.float(), expected, atol=1e-2, rtol=1e-2)
    trainable = Elmo(tiny(), trainable=True, dropout=0.0).to(dtype)
    (output,), _ = trainable(SENTENCES)
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, atol=0.1, rtol=0.1)


def test_conversion_does_not_change_the_given_model_or_other_modules() -> None:
    pretrained = tiny()
    one, other = Elmo(pretrained), Elmo(pretrained)
    places = [weight.data_ptr() for weight in one.model.parameters()]
    assert [weight.data_ptr() for weight in other.model.parameters()] == places  # shared
    one.double()
    for model in (pretrained.model, other.model):
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert other.to("cpu").model is other.model


@pytest.mark.parametrize("trainable", [False, True])
def test_second_backward_pass_through_one_forward(backend: str, trainable: bool) -> None:
    elmo = Elmo(tiny(), dropout=0.0, trainable=trainable)
    (loss,) = (output.square().sum() for output in elmo(SENTENCES).outputs)
    loss.backward(retain_graph=True)
    once = [weight.grad.clone() for weight in elmo.parameters()]
    if trainable and backend == "c":
        with pytest.raises(RuntimeError, match="run forward again, or set BILM_KERNELS=torch"):
            loss.backward()
        return
    loss.backward()
    twice = [weight.grad for weight in elmo.parameters()]
    torch.testing.assert_close(twice, [2 * gradient for gradient in once])


@pytest.mark.parametrize("trainable", [False, True])
def test_deepcopy(trainable: bool) -> None:
    tagger = Tagger(trainable=trainable)
    tagger(SENTENCES).sum().backward()
    copied = copy.deepcopy(tagger)
    assert torch.equal(copied(SENTENCES), tagger(SENTENCES))
    is_shared = copied.elmo.model is tagger.elmo.model
    assert is_shared != trainable  # frozen weights are not copied
    before = tagger(SENTENCES).detach()
    with torch.no_grad():
        for weight in copied.parameters():
            weight.add_(0.1)
    copied.double()
    assert torch.equal(tagger(SENTENCES), before)
    assert not torch.equal(copied(SENTENCES).float(), before)


@pytest.mark.parametrize("trainable", [False, True])
def test_save_and_load_of_the_whole_module(trainable: bool, tmp_path: Path) -> None:
    tagger = Tagger(trainable=trainable)
    object.__setattr__(tagger.elmo.preparer, "tokenizer", MosesTokenizer())
    expected = tagger(["The bank floods."])
    torch.save(tagger, tmp_path / "tagger.pt")
    loaded = torch.load(tmp_path / "tagger.pt", weights_only=False)
    assert torch.equal(loaded(["The bank floods."]), expected)
    names = [name for name, _ in tagger.named_parameters()]
    assert [name for name, _ in loaded.named_parameters()] == names


def test_state_dict_of_frozen_module_has_only_the_mixes() -> None:
    elmo = Elmo(tiny(), num_outputs=2)
    names = [f"mixes.{i}.{name}" for i in range(2) for name in ("weights", "gamma")]
    assert list(elmo.state_dict()) == names
    assert [name for name, _ in elmo.named_parameters()] == names
    buffer = io.BytesIO()
    torch.save(elmo.state_dict(), buffer)
    buffer.seek(0)
    other = Elmo(tiny(), num_outputs=2)
    with torch.no_grad():
        other.mixes[1].gamma.fill_(7.0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(other.mixes[1].gamma, torch.tensor(1.0))


@pytest.mark.parametrize("options", [{"trainable": True}, {"save_frozen": True}])
def test_frozen_module_loads_saved_weights(options: Any) -> None:
    saved = Tagger(**options)
    if "trainable" in options:
        with torch.no_grad():
            for weight in saved.parameters():
                weight.mul_(1.1)
    names = [name for name, _ in saved.elmo.model.named_parameters()]
    assert frozen_names(saved) == [f"elmo.bilm.{name}" for name in names]
    state = saved.eval().state_dict()
    for loaded in (Tagger(), Tagger(trainable=True)):
        shared = tiny(seed=5)
        loaded.elmo = Elmo(shared, dropout=0.0, trainable=loaded.elmo.trainable)
        untouched = copy.deepcopy(shared.model)
        loaded.load_state_dict(state)
        torch.testing.assert_close(loaded.eval()(SENTENCES), saved(SENTENCES), atol=1e-6, rtol=1e-5)
        for weight, other in zip(shared.model.parameters(), untouched.parameters(), strict=True):
            assert torch.equal(weight, other)
    again = Tagger()
    assert frozen_names(again) == []
    again.load_state_dict(state)
    assert frozen_names(again) == frozen_names(saved)  # replaced weights are saved again
    del state["elmo.bilm.bilstm.stacks.0.0.bias"]
    with pytest.raises(RuntimeError, match=r"'bilstm.stacks.0.0.bias' of the biLM is missing"):
        Tagger().load_state_dict(state)


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("state", ["reset", "warm"])
def test_threads_share_a_module(state: StateMode, trainable: bool) -> None:
    elmo = Elmo(tiny(), num_outputs=2, state=state, trainable=trainable).eval()
    batches = [[*SENTENCES[i:], *SENTENCES[:i]] for i in range(len(SENTENCES))] * 4
    expected = [elmo(batch) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(elmo, batches))
    for ours, alone in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.outputs, alone.outputs, atol=1e-6, rtol=1e-6)
        assert torch.equal(ours.mask, alone.mask)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_data_loader_prepare_batches(context: str) -> None:
    elmo = Elmo(tiny(), dropout=0.0)
    loader: DataLoader[Any] = DataLoader(
        SENTENCES,  # type: ignore[arg-type]
        batch_size=2,
        num_workers=2,
        multiprocessing_context=context,
        collate_fn=elmo.preparer,
    )
    batches = list(loader)
    assert all(isinstance(batch, PreparedBatch) for batch in batches)
    for number, batch in enumerate(batches):
        expected = elmo(SENTENCES[2 * number : 2 * number + 2])
        torch.testing.assert_close(elmo(batch), expected)


def test_prepared_batches_are_small_and_picklable() -> None:
    elmo = Elmo(tiny())
    batch = elmo.prepare(SENTENCES)
    assert torch.equal(batch.words, pickle.loads(pickle.dumps(batch)).words)
    assert len(batch.words) == len({word for s in SENTENCES for word in s}) + 2  # distinct words
    assert elmo.preparer.vocabulary is None  # a model that reads characters does not need it
    loaded = pickle.loads(pickle.dumps(elmo.preparer))
    assert torch.equal(loaded(SENTENCES).inverse, batch.inverse)
    num_weights = sum(weight.numel() for weight in elmo.model.parameters())
    assert len(pickle.dumps(elmo.preparer)) < num_weights


@pytest.mark.slow
@pytest.mark.launch
def test_distributed_data_parallel_equals_one_process() -> None:
    assert_equal_on_ranks("tests.bilm.embedding.elmo_ranks", 2)


def test_weights_of_files_ignore_the_default_type_and_device(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path / "model")
    expected = Elmo(tmp_path / "model", dropout=0.0)(SENTENCES).outputs[0]
    torch.set_default_dtype(torch.float64)
    try:
        elmo = Elmo(tmp_path / "model", dropout=0.0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {weight.dtype for weight in elmo.model.parameters()} == {torch.float32}
    torch.testing.assert_close(elmo(SENTENCES).outputs[0].float(), expected, atol=1e-6, rtol=1e-6)
    with torch.device("meta"):
        elmo = Elmo(tmp_path / "model", dropout=0.0)
    assert {weight.device.type for weight in elmo.model.parameters()} == {"cpu"}


def test_rejects_the_meta_device() -> None:
    with pytest.raises(ConfigError, match="the biLM is on the meta device, so it has no weights"):
        Elmo(tiny()).to("meta")(SENTENCES)


def test_describes_itself() -> None:
    assert "dim=12, num_layers=2, biLM is frozen" in repr(Elmo(tiny()))
    assert "biLM is trainable" in repr(Elmo(tiny(), trainable=True))
