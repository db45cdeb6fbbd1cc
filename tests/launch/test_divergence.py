"""A loss that is not a number stops all ranks at its step, before the update."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bilm.config import ModelConfig
from bilm.model import BiLm
from bilm.pretrained import PretrainedBiLm
from bilm.vocabulary import Vocabulary
from tests.conftest import ROOT
from tests.launch.launching import TINY, events, final_tensors, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]


def test_nan_on_one_rank_stops_all_at_that_step(tmp_path: Path) -> None:
    """The softmax bias of one word is not a number; the word stands once in the corpus."""
    lines = [f"word{i % 50} stands in line {i}" for i in range(4000)]
    lines[3000] = "a poisoned Zebra"
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    build = [
        *("--input", str(tmp_path / "text.txt"), "--output", str(tmp_path / "corpus")),
        *("--tokenizer", "whitespace", "--shuffle", "none", "--heldout", "0", "--min-count", "1"),
    ]
    subprocess.run(
        [sys.executable, "-m", "data_tools.build_corpus", *build],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )
    vocabulary = Vocabulary.read(tmp_path / "corpus" / "vocab.txt")
    torch.manual_seed(0)
    config = ModelConfig.model_validate_json(json.dumps(TINY["model"]))
    model = BiLm(config, len(vocabulary))
    assert model.softmax is not None
    with torch.no_grad():
        model.softmax.bias[vocabulary["Zebra"]] = torch.nan
    PretrainedBiLm(model, vocabulary).save_pretrained(tmp_path / "poisoned")

    output = tmp_path / "x" / "run"
    done = launch(
        tmp_path / "corpus",
        output,
        f"train.init_from={tmp_path / 'poisoned'}",
        "train.max_steps=100000",
        "train.checkpoints.every_steps=1",
        "deepspeed.train_batch_size=100",
        "model.softmax.num_negatives=3",  # few, so that the word is met as a target first
        ranks=2,
        code=3,
    )
    last = events(output, "train")[-1]["step"]
    assert f"the loss of step {last + 1} on rank" in done.stderr
    assert "nothing was updated" in done.stderr
    assert "train-00000.tar, block" in done.stderr
    assert "Traceback" not in done.stderr
    # Nothing of the bad step has reached the run: the newest checkpoint is of the step before.
    assert events(output, "checkpoint")[-1]["step"] == last
    weights = final_tensors(output, last)["weights/softmax.bias"].flatten()
    assert torch.isnan(weights).nonzero().flatten().tolist() == [vocabulary["Zebra"]]
