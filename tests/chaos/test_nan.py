"""Row 9: a loss that is NaN on one rank at step k."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bilm.model.config import ModelConfig
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.vocabulary import Vocabulary
from tests.chaos.results import Row, row
from tests.conftest import ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import TINY, events, final_tensors, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]
LINES = 4000
TITLE = "a NaN on one rank at step k"


def test_nan_short(tmp_path: Path) -> None:
    with row(9, TITLE) as results:
        _poisoned(results, tmp_path, line=1800, ranks=2)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_nan(tmp_path: Path) -> None:
    with row(9, TITLE) as results:
        for line, ranks in ((150, 2), (1800, 2), (3900, 4), (2500, 4), (700, 1)):
            _poisoned(results, tmp_path / str(line), line, ranks)


def _poisoned(results: Row, directory: Path, line: int, ranks: int) -> None:
    """Train with a NaN in the softmax bias of a word that occurs once in the corpus."""
    with results.case(f"line {line} of the text, {ranks} ranks"):
        corpus, poisoned = _corpus(directory, line), directory / "poisoned"
        word = _poison(corpus, poisoned)
        settings = (
            f"train.init_from={poisoned}",
            "train.max_steps=100000",
            "train.checkpoints.every_steps=1",
            "deepspeed.train_batch_size=100",
            "model.softmax.num_negatives=3",  # few, so that the word occurs first as a target
        )
        output, before = directory / "x" / "run", directory / "y" / "run"
        done = launch(corpus, output, *settings, ranks=ranks, code=3)
        match = re.search(r"the loss of step (\d+) on rank (\d+) is \[.*nan", done.stderr)
        assert match is not None, done.stderr[-2000:]
        step = int(match[1])
        assert events(output, "train")[-1]["step"] == step - 1
        assert events(output, "checkpoint")[-1]["step"] == step - 1
        assert "nothing was updated" in done.stderr
        assert "Traceback" not in done.stderr
        if step > 1:  # its weights equal those of a run of k - 1 steps
            train_forked(corpus, before, *settings, f"train.max_steps={step - 1}", ranks=ranks)
            _assert_same(final_tensors(output, step - 1), final_tensors(before, step - 1))
        bias = final_tensors(output, step - 1)["weights/softmax.bias"].flatten()
        assert torch.isnan(bias).nonzero().flatten().tolist() == [word]
        stopped_at = f"step {step} on rank {match[2]} of {ranks}"
        results.worst += ("; " if results.worst else "all ranks stopped at: ") + stopped_at


def _corpus(directory: Path, line: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"word{i % 50} stands in line {i}" for i in range(LINES)]
    lines[line] = "a poisoned Zebra"
    (directory / "text.txt").write_text("\n".join(lines) + "\n")
    command = [
        sys.executable,
        "-m",
        "data_tools.build_corpus",
        f"--input={directory / 'text.txt'}",
        f"--output={directory / 'corpus'}",
        "--tokenizer=whitespace",
        "--shuffle=none",
        "--heldout=0",
        "--min-count=1",
    ]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return directory / "corpus"


def _poison(corpus: Path, poisoned: Path) -> int:
    vocabulary = Vocabulary.read(corpus / "vocab.txt")
    torch.manual_seed(0)
    config = ModelConfig.model_validate_json(json.dumps(TINY["model"]))
    model = BiLm(config, len(vocabulary))
    assert model.softmax is not None
    with torch.no_grad():
        model.softmax.bias[vocabulary["Zebra"]] = torch.nan
    PretrainedBiLm(model, vocabulary).save_pretrained(poisoned)
    return vocabulary["Zebra"]


def _assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name].nan_to_num(7.0), other[name].nan_to_num(7.0)), name
