from __future__ import annotations

import json
from pathlib import Path

import pytest

from bilm.commands.plan import (
    TextSize,
    format_plan,
    make_plan,
    plan_memory,
)
from bilm.errors import ConfigError, CorpusError
from bilm.training.config import load_config
from tests.bilm.small_corpus import write_corpus
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"
COUNTS = {"token encoder": 18_037_840, "LSTMs": 75_563_008, "softmax": 407_050_623}


def test_plans_run_on_small_corpus(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus", {"train": [["one", "two", "three"]] * 1000})
    config = load_config(BIG, [f"data.corpus={tmp_path / 'corpus'}"])
    plan = make_plan(config, words_per_second=1000.0)
    assert (plan.text.words, plan.text.sentences, plan.steps) == (3000, 1000, 10)
    assert plan.parameters["forward LSTMs"] == 37_781_504
    assert plan.num_checkpoints == 4
    assert plan.by_ranks[8] is not None
    assert plan.by_ranks[8].rows == 48
    assert plan.by_ranks[8].hours == pytest.approx(10 * 384 * 20 / 8000 / 3600)
    text = format_plan(plan)
    assert "3,000 words in 1,000 sentences: 4,000 predictions" in text
    assert "10 epochs, 384 rows x 20 words per step: 10 steps" in text
    assert "37,781,504" in text  # the LSTMs of one direction
    assert "without the softmax" in text
    for ranks in (1, 8, 64):
        assert any(line.split()[:1] == [str(ranks)] for line in text.splitlines())


def test_rejects_missing_corpus(tmp_path: Path) -> None:
    message = "build the corpus first.* --vocabulary-size and --words"
    with pytest.raises(CorpusError, match=message):
        make_plan(load_config(BIG, [f"data.corpus={tmp_path}"]))


def test_plans_published_run_before_corpus_exists() -> None:
    text = TextSize.assumed(vocabulary_size=793_471, words=768_648_884)
    plan = make_plan(load_config(BIG), text)
    shown = {line.strip() for line in format_plan(plan).splitlines()}
    for name, count in (
        ("softmax", "407,050,623"),
        ("all", "500,651,471"),
        ("without the softmax", "93,600,848"),
    ):
        assert any(line.split() == [*name.split(), count] for line in shown)
    assert any("assuming 20 words per sentence" in line for line in shown)
    with pytest.raises(ConfigError, match="--words is 0; it must be at least 1"):
        TextSize.assumed(793_471, 0)


def test_reports_ranks_that_cannot_share_rows(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus", {"train": [["one", "two"]]})
    config = load_config(
        BIG, [f"data.corpus={tmp_path / 'corpus'}", "deepspeed.train_batch_size=24"]
    )
    plan = make_plan(config)
    assert plan.by_ranks[64] is None
    assert "24 rows cannot be divided into 64 equal parts" in format_plan(plan)
    assert "--words-per-second" in format_plan(plan)
    with pytest.raises(ConfigError, match="--words-per-second is 0"):
        make_plan(config, words_per_second=0.0)


def test_memory_decreases_with_ranks_and_stage() -> None:
    config, text = load_config(BIG), TextSize.assumed(793_471, 10**9)
    weights = 4 * sum(COUNTS.values())
    one, eight = (plan_memory(config, COUNTS, text, world, 5e8) for world in (1, 8))
    assert (one.weights, one.optimizer, one.libraries) == (weights, weights, 5e8)
    assert one.peak > 2 * weights + 5e8
    assert eight.step < one.step
    assert eight.weights == one.weights
    full = json.dumps("full")
    stages = [
        plan_memory(
            load_config(
                BIG, [f"model.softmax.kind={full}", f"deepspeed.zero_optimization.stage={stage}"]
            ),
            COUNTS,
            text,
            8,
            0.0,
        ).peak
        for stage in range(4)
    ]
    assert stages == sorted(stages, reverse=True)
