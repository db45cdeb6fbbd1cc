"""AllenNLP as a contender, with a package of that name that computes its vectors with bilm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from bilm.model.language_model import BiLm
from tests.conftest import ROOT, tiny_model_config

sys.path.insert(0, str(ROOT / "benchmarks"))

from allennlp_elmo import AllenNlp

MODULE = """
import torch, torchvision.ops.boxes  # which is not installed
from bilm import Embedder

def batch_to_ids(batch):
    assert len(batch) <= 64
    return batch

class Elmo(torch.nn.Module):
    def __init__(self, options, weights, num_output_representations, dropout):
        super().__init__()
        self.embedder = Embedder.from_published(options, weights)
        self._elmo_lstm = torch.nn.Module()
        self._elmo_lstm._elmo_lstm = torch.nn.Module()
        self._elmo_lstm._elmo_lstm.reset_states = lambda: None

    def forward(self, batch):
        arrays = [torch.tensor(array).mean(dim=0) for array in self.embedder.embed(batch)]
        return {"elmo_representations": [torch.nn.utils.rnn.pad_sequence(arrays, True)]}
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter whose environment has the package."""
    package = tmp_path / "packages" / "allennlp"
    (package / "modules").mkdir(parents=True)
    for path, text in {
        "__init__.py": "",
        "version.py": "VERSION = '1.2.3'\n",
        "modules/__init__.py": "",
        "modules/elmo.py": MODULE,
    }.items():
        (package / path).write_text(text, encoding="utf-8")
    script = tmp_path / "python"
    path = f"{package.parent}:{ROOT}"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


def test_times_other_process_and_compares_vectors(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), None).eval()
    sentences = [["The", "bank", "floods", "."], ["Hello"], ["one", "two"]] * 30
    other = AllenNlp(str(python), model, sentences, tmp_path)
    try:
        assert other.versions == {"allennlp": "1.2.3", "torch": torch.__version__}
        assert other.difference < 1e-6
        for _ in range(2):
            total, without_ids = other.seconds()
            assert 0 < without_ids <= total
    finally:
        other.close()


def test_reports_failed_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = BiLm(tiny_model_config(), None).eval()
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(RuntimeError, match="exit code 3"):
        AllenNlp(str(script), model, [["Hello"]], tmp_path)
