"""`Elmo` inside of a compiled model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bilm import Elmo
from bilm.embedding.prepared import PreparedBatch
from tests.bilm.embedding.elmo_models import SENTENCES, Tagger, tiny
from tests.conftest import ROOT


class Classifier(nn.Module):
    """A user's model without modules that the compiler leaves out, other than the biLM."""

    def __init__(self) -> None:
        super().__init__()
        self.elmo = Elmo(tiny(), 2, dropout=0.0)
        torch.manual_seed(3)
        self.hidden = nn.Linear(2 * self.elmo.dim, 8)
        self.scores = nn.Linear(8, 3)

    def forward(self, batch: PreparedBatch) -> Tensor:
        outputs, mask = self.elmo(batch)
        hidden = self.hidden(torch.cat(outputs, dim=-1)).tanh()  # (sentences, words, 8)
        pooled = hidden.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1)  # (sentences, 8)
        scores: Tensor = self.scores(pooled)
        return scores


@pytest.mark.parametrize("trainable", [False, True])
def test_compiled_model_equals_the_original(trainable: bool) -> None:
    tagger = Tagger(trainable=trainable).eval()
    torch._dynamo.reset()
    compiled = torch.compile(tagger, backend="eager")
    for sentences in (SENTENCES, SENTENCES[:2], tagger.elmo.prepare(SENTENCES)):
        ours, expected = compiled(sentences), tagger(sentences)
        torch.testing.assert_close(ours, expected)
    gradients = []
    for model in (compiled, tagger):
        tagger.zero_grad()
        model(SENTENCES).square().sum().backward()
        gradients.append([weight.grad for weight in tagger.parameters()])
    torch.testing.assert_close(*gradients)


def test_compiles_once_for_prepared_batches_of_different_shapes() -> None:
    tagger = Tagger().eval()
    torch._dynamo.reset()
    compiled = torch.compile(tagger, backend="eager")
    frames = torch._dynamo.utils.counters["frames"]
    frames.clear()
    numbers = []
    for width in range(3, 13):
        batch = tagger.elmo.prepare([["a"] * width, ["b", "c"], ["d"]][: 2 + width % 2])
        torch.testing.assert_close(compiled(batch), tagger(batch))
        numbers.append(frames["total"])
    assert numbers[-1] == numbers[len(numbers) // 2]


def test_compiled_functions_may_prepare_batches_and_read_layers() -> None:
    elmo = Elmo(tiny(), dropout=0.0).eval()

    def mean(sentences: list[list[str]]) -> Tensor:
        layers, mask = elmo.layers(elmo.prepare(sentences))
        return torch.stack(layers)[:, mask].mean(dim=1)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(mean, backend="eager")(SENTENCES), mean(SENTENCES))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_compiles_the_outer_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    model = Classifier().eval()
    batches = [model.elmo.prepare(SENTENCES), model.elmo.prepare(SENTENCES[:2])]
    torch._dynamo.reset()
    compiled = torch.compile(model)  # with inductor, the default backend
    for batch in batches:
        torch.testing.assert_close(compiled(batch), model(batch), atol=1e-5, rtol=1e-5)
    gradients = []
    for own in (compiled, model):
        model.zero_grad()
        own(batches[0]).square().sum().backward()
        gradients.append([weight.grad for weight in model.parameters()])
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)
    assert list(tmp_path.rglob("*.so"))  # kernels were built


def test_does_not_import_the_compiler() -> None:
    code = (
        "import sys, torch, bilm\n"
        "from tests.bilm.embedding.elmo_models import tiny\n"
        "bilm.Elmo(tiny())([['a']])\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=300
    )
    assert done.stdout.split() == ["False"]
