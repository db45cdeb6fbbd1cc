from __future__ import annotations

from pathlib import Path

import pytest
import torch

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
