from __future__ import annotations

import json
from pathlib import Path

import pytest

from bilm.commands.plan import memory, plan, traffic
from bilm.errors import CorpusError
from bilm.training.config import load_config
from tests.bilm.small_corpus import write_corpus
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"
COUNTS = {"token encoder": 18_037_840, "LSTMs": 75_563_008, "softmax": 407_050_623}


def test_plan_of_a_small_corpus(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus", {"train": [["one", "two", "three"]] * 1000})
    config = load_config(BIG, [f"data.corpus={tmp_path / 'corpus'}"])
    text = plan(config, words_per_second=1000.0)
    assert "3,000 words in 1,000 sentences: 4,000 predictions" in text
    assert "10 epochs, 384 rows x 20 words a step: 10 steps" in text
    assert "37,781,504" in text  # the LSTMs of a direction
    for ranks in (1, 8, 64):
        assert any(line.split()[:1] == [str(ranks)] for line in text.splitlines())


def test_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="build the corpus first"):
        plan(load_config(BIG, [f"data.corpus={tmp_path}"]))


def test_sparse_traffic_is_a_few_percent_of_the_dense_table() -> None:
    config = load_config(BIG)
    dense, sparse = traffic(config, COUNTS, world=2)
    assert dense == 4 * (18_037_840 + 75_563_008)
    table = 407_050_623 * 4
    assert sparse < 0.05 * table
    full = load_config(BIG, ["model.softmax.kind=full"])
    assert traffic(full, COUNTS, world=2) == (4.0 * sum(COUNTS.values()), 0.0)
    assert traffic(config, COUNTS, world=1) == (0.0, 0.0)


def test_memory_falls_with_ranks_and_stage() -> None:
    config = load_config(BIG)
    weights = 4 * sum(COUNTS.values())
    assert memory(config, COUNTS, 1) > 2 * weights  # with Adagrad's sums
    assert memory(config, COUNTS, 8) < memory(config, COUNTS, 1)
    full = json.dumps("full")
    stages = [
        memory(
            load_config(
                BIG, [f"model.softmax.kind={full}", f"deepspeed.zero_optimization.stage={stage}"]
            ),
            COUNTS,
            8,
        )
        for stage in range(4)
    ]
    assert stages == sorted(stages, reverse=True)
    assert len(set(stages)) == 4
