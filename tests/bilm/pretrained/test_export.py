from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bilm.errors import CheckpointError
from bilm.model.language_model import BiLm
from bilm.pretrained.export import export_model, export_published
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.vocabulary import Vocabulary
from tests.conftest import GOLDEN, tiny_model_config


@pytest.fixture
def pretrained() -> PretrainedBiLm:
    torch.manual_seed(0)
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    return PretrainedBiLm(BiLm(tiny_model_config(), len(vocabulary)), vocabulary)


@pytest.mark.parametrize("without_softmax", [False, True])
def test_exports_published_files(
    pretrained: PretrainedBiLm, tmp_path: Path, without_softmax: bool
) -> None:
    export_published(pretrained, tmp_path / "out", without_softmax)
    found = PretrainedBiLm.open(tmp_path / "out")
    assert (found.model.softmax is None) == without_softmax
    assert pretrained.model.softmax is not None
    assert found.vocabulary is not None
    expected = dict(pretrained.model.named_parameters())
    assert all(torch.equal(p, expected[name]) for name, p in found.model.named_parameters())


def test_rejects_existing_output(pretrained: PretrainedBiLm, tmp_path: Path) -> None:
    export_published(pretrained, tmp_path / "out")
    with pytest.raises(CheckpointError, match=r"options\.json already exists"):
        export_published(pretrained, tmp_path / "out")
    export_published(pretrained, tmp_path / "out", overwrite=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="is a file"):
        export_published(pretrained, tmp_path / "file")


def test_verifies_written_files(
    pretrained: PretrainedBiLm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PretrainedBiLm(BiLm(tiny_model_config(), 82), pretrained.vocabulary)
    monkeypatch.setattr(PretrainedBiLm, "from_pretrained", lambda directory: other)
    with pytest.raises(CheckpointError, match="verification failed"):
        export_model(pretrained, tmp_path / "out")


def test_float16_rounds_all_weights_but_those_of_the_encoder(
    pretrained: PretrainedBiLm, tmp_path: Path
) -> None:
    export_model(pretrained, tmp_path / "full")
    export_model(pretrained, tmp_path / "half", dtype="float16")
    stored = load_file(tmp_path / "half" / "model.safetensors")
    halves = {name for name, tensor in stored.items() if tensor.dtype == torch.float16}
    kept = {name for name, tensor in stored.items() if tensor.dtype == torch.float32}
    assert kept == {n for n in stored if n.startswith("encoder.") and ".highways." not in n}
    assert halves == stored.keys() - kept
    assert len(halves) > len(kept) > 0
    sizes = [(tmp_path / n / "model.safetensors").stat().st_size for n in ("full", "half")]
    saved = sum(stored[name].nbytes for name in halves)
    assert sizes[0] - sizes[1] == pytest.approx(saved, abs=64)
    read = PretrainedBiLm.open(tmp_path / "half").model
    for name, weight in pretrained.model.named_parameters():
        expected = weight.half().float() if name in halves else weight
        assert read.get_parameter(name).dtype == torch.float32
        assert torch.equal(read.get_parameter(name), expected)


def test_float16_rejects_weights_that_it_cannot_represent(
    pretrained: PretrainedBiLm, tmp_path: Path
) -> None:
    with torch.no_grad():
        pretrained.model.get_parameter("softmax.bias")[3] = 70_000.0
    with pytest.raises(CheckpointError, match=r"softmax\.bias' has values that float16"):
        export_model(pretrained, tmp_path / "half", dtype="float16")
    assert not (tmp_path / "half").exists()
