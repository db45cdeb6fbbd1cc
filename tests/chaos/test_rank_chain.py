"""Row 10: one run on 4, 2, 1 and again 4 ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.corpus.reader import Corpus
from tests.chaos.table import row
from tests.launch.launching import assert_same_run, build_demo_corpus, launch, losses

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
CHAIN = ((4, 5), (2, 10), (1, 15), (4, 20))  # ranks, and the step at which they end
ROWS, UNROLL = 8, 6


@pytest.mark.timeout(900)
def test_a_chain_of_ranks(tmp_path: Path) -> None:
    with row(10, "resumed on 4, 2, 1 and 4 ranks") as trying:
        corpus = build_demo_corpus(tmp_path)
        steps = CHAIN[-1][1]
        with trying.case("the words of every step"):
            for step in range(steps):
                assert len({_words(corpus, step, ranks) for ranks, _ in CHAIN}) == 1
        whole, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
        launch(corpus, whole, f"train.max_steps={steps}", ranks=1)
        with trying.case("the losses"):
            for ranks, end in CHAIN:
                launch(corpus, broken, f"train.max_steps={end}", ranks=ranks)
            ours, theirs = (np.array(losses(run)) for run in (broken, whole))
            greatest = np.abs(ours - theirs).max()
            trying.worst = f"losses differ by {greatest:.1e} at most; the same words in each step"
            assert_same_run(whole, broken, steps, 1e-5)


def _words(corpus: Path, step: int, world: int) -> bytes:
    """All inputs and targets of a step, in the order of the rows of the whole batch."""
    inputs, targets = [], []
    for rank in range(world):
        reader = Corpus.open(corpus)
        stream = BatchStream(reader, "train", GlobalBatch(ROWS, UNROLL), RankShare(rank, world))
        batch = stream.batch(step)
        inputs.append(batch.words[batch.word_index])
        targets.append(batch.targets)
    return b"".join(np.concatenate(part, axis=1).tobytes() for part in (inputs, targets))
