"""Row 10: one run that is resumed on 4, 2, 1 and 4 ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.corpus.reader import Corpus
from tests.chaos.results import row
from tests.launch.launching import assert_same_run, build_demo_corpus, launch, losses

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
CHAIN = ((4, 5), (2, 10), (1, 15), (4, 20))  # ranks, and their last step
ROWS, UNROLL = 8, 6


@pytest.mark.timeout(900)
def test_rank_chain(tmp_path: Path) -> None:
    with row(10, "a run resumed on 4, 2, 1 and 4 ranks") as results:
        corpus = build_demo_corpus(tmp_path)
        steps = CHAIN[-1][1]
        with results.case("the words of every step"):
            for step in range(steps):
                assert len({_words(corpus, step, ranks) for ranks, _ in CHAIN}) == 1
        unbroken, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
        launch(corpus, unbroken, f"train.max_steps={steps}", ranks=1)
        with results.case("the losses"):
            for ranks, end in CHAIN:
                launch(corpus, broken, f"train.max_steps={end}", ranks=ranks)
            one, other = (np.array(losses(run)) for run in (broken, unbroken))
            difference = np.abs(one - other).max()
            results.worst = (
                f"losses differ by {difference:.1e} at most; the same words in each step"
            )
            assert_same_run(unbroken, broken, steps, 1e-5)


def _words(corpus: Path, step: int, world: int) -> bytes:
    """Return all inputs and targets of a step, in the order of the rows of the global batch."""
    inputs, targets = [], []
    for rank in range(world):
        reader = Corpus.open(corpus)
        stream = BatchStream(reader, "train", GlobalBatch(ROWS, UNROLL), RankShare(rank, world))
        batch = stream.batch(step)
        inputs.append(batch.words[batch.word_index])
        targets.append(batch.targets)
    return b"".join(np.concatenate(part, axis=1).tobytes() for part in (inputs, targets))
