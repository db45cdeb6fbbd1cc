"""The commands on the second device, which is their default: the results of the CPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bilm.commands import embed, evaluate
from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.parity import TOLERANCE, compare
from bilm.parity import main as parity
from bilm.pretrained.digests import model_digest
from bilm.pretrained.export import export_model, export_published
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.transfer import initialize_from
from bilm.text.tokenizers import WhitespaceTokenizer
from tests.bilm.small_corpus import write_corpus
from tests.conftest import GOLDEN, tiny_model_config
from tests.second_device.device import NAME, counting
from tests.second_device.products import ProductDtypes
from tests.second_device.training import use_second_device

Run = Callable[..., str]
TEXTS = [[f"w{(i * j) % 7}" for j in range(1, 4 + i % 5)] for i in range(40)]


@pytest.fixture
def device() -> str:
    use_second_device()
    return NAME


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the `main` of a command and returns its output."""

    def call(main: Callable[[], int], *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        assert main() == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model and a corpus with its vocabulary."""
    corpus = write_corpus(tmp_path / "corpus", {"heldout": TEXTS})
    torch.manual_seed(0)
    bilm = BiLm(tiny_model_config(), corpus.vocabulary_size).eval()
    pretrained = PretrainedBiLm(bilm, corpus.vocabulary, WhitespaceTokenizer())
    pretrained.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["train_trace", "embeddings", "sampled_softmax"])
def test_parity(device: str, name: str) -> None:
    with counting() as counts:
        differences = compare(GOLDEN / f"{name}.npz")
    assert all(difference <= TOLERANCE for difference in differences.values())
    assert counts.num_operators > 0


def test_parity_command(device: str, run: Run) -> None:
    path = GOLDEN / "sampled_softmax.npz"
    assert "passed" in run(parity, path, "--device", device)
    with counting() as counts:
        assert "passed" in run(parity, path, "--device", "cpu")
    assert counts.num_operators == 0


@pytest.mark.parametrize("flags", [[], ["--pool", "mean", "--state", "warm"]], ids=str)
def test_embeds(device: str, run: Run, model: Path, tmp_path: Path, flags: list[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(words) + "\n" for words in TEXTS))
    for name in ("cpu", device):
        output = tmp_path / f"{name}.hdf5"
        run(
            embed.main,
            "--model",
            model,
            "--input",
            text,
            "--output",
            output,
            "--device",
            name,
            *flags,
        )
    with h5py.File(tmp_path / "cpu.hdf5") as a, h5py.File(tmp_path / f"{device}.hdf5") as b:
        assert a.keys() == b.keys()
        for key in set(a) - {"sentence_to_index"}:
            np.testing.assert_allclose(b[key][()], a[key][()], atol=1e-6)


def test_resumed_dump_must_have_the_same_precision(
    device: str, run: Run, model: Path, tmp_path: Path
) -> None:
    from bilm.embedding.dump import EmbeddingDump

    text, output = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("w1 w2\n")
    flags = ["--model", model, "--input", text, "--output", output]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddingDump, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(embed.main, *flags, "--precision", "bfloat16")
    with pytest.raises(Exception, match="precision: bfloat16 before, None now"):
        run(embed.main, *flags)
    run(embed.main, *flags, "--precision", "bfloat16", "--device", "cpu")


def test_evaluates(device: str, run: Run, model: Path, tmp_path: Path) -> None:
    flags = ["--model", model, "--corpus", tmp_path / "corpus", "--rows", 4, "--json"]
    with counting() as counts:
        ours = json.loads(run(evaluate.main, *flags))
    assert counts.operators["aten::addmm"] > 0
    with counting() as counts:
        expected = json.loads(run(evaluate.main, *flags, "--device", "cpu"))
    assert counts.num_operators == 0
    assert ours == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("on_cpu", [True, False], ids=["cpu", "second device"])
def test_evaluates_in_bfloat16(
    device: str, run: Run, model: Path, tmp_path: Path, on_cpu: bool
) -> None:
    flags = ["--model", model, "--corpus", tmp_path / "corpus", "--rows", 4, "--json"]
    exact = json.loads(run(evaluate.main, *flags))
    name = "cpu" if on_cpu else device
    with ProductDtypes() as products:
        rounded = json.loads(
            run(evaluate.main, *flags, "--precision", "bfloat16", "--device", name)
        )
    assert products.dtypes - {torch.float64} == {torch.bfloat16}
    assert rounded == pytest.approx(exact, rel=0.02)


def test_exports_a_model_on_the_device(device: str, model: Path, tmp_path: Path) -> None:
    pretrained = PretrainedBiLm.open(model)
    digest = model_digest(pretrained)
    pretrained.model.to(device)
    export_model(pretrained, tmp_path / "exported")
    export_published(pretrained, tmp_path / "published")
    assert model_digest(PretrainedBiLm.open(tmp_path / "exported")) == digest


def test_initializes_a_model_on_the_device(device: str, model: Path) -> None:
    source = PretrainedBiLm.open(model)
    assert source.vocabulary is not None
    target = BiLm(source.model.config, len(source.vocabulary)).to(device)
    initialize_from(target, source.vocabulary, model)
    for ours, theirs in zip(target.parameters(), source.model.parameters(), strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_rejects_device_that_does_not_exist(
    device: str, run: Run, model: Path, tmp_path: Path
) -> None:
    message = f"the device is 'cuda'.*available devices: cpu, {device}:0"
    with pytest.raises(ConfigError, match=message):
        run(parity, GOLDEN / "embeddings.npz", "--device", "cuda")
    flags = ["--model", model, "--corpus", tmp_path / "corpus", "--device", "cuda"]
    with pytest.raises(ConfigError, match=message):
        run(evaluate.main, *flags)
