"""Measure how long a save stalls training: `python benchmarks/checkpoint.py`

One process trains a model whose weights and optimizer state take about 400 MB. It saves in turn
as a run does, in the background during the following steps, and synchronously: it waits until the
checkpoint is written, synced and verified. Prints one JSON line: the median stall of both with
their range, their ratio, and the time of a step with and without a save in the background.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rounds import Bounds, add_bounds, steady_rounds, summary

from bilm.distributed.process import configure_process, num_cores
from bilm.training.config import load_config

if TYPE_CHECKING:
    from bilm.training.loop import Run

VOCABULARY = 42_000

OVERRIDES = ("model.lstm.projection_dim=512", "deepspeed.train_batch_size=32")

STEPS_BETWEEN = 3


@dataclass
class Round:
    """The seconds of one background save, of one synchronous save, and of steps."""

    stall: float = 0.0
    background: float = 0.0  # until the checkpoint in the background was verified
    synchronous: float = 0.0
    steps: list[float] = field(default_factory=list)
    steps_during_save: list[float] = field(default_factory=list)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_bounds(parser)
    parser.add_argument(
        "--directory", type=Path, help="where to write (default: a temporary directory)"
    )
    arguments = parser.parse_args()
    configure_process()  # before torch is imported, as in a run
    from zipf import write_zipf_corpus

    from bilm.training.setup import prepare

    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        corpus, run = Path(directory) / "corpus", Path(directory) / "run"
        corpus.mkdir()
        write_zipf_corpus(corpus, 1_000_000, VOCABULARY, VOCABULARY, seed=1)
        paths = (f"data.corpus={corpus}", f"train.output_dir={run}")
        config = load_config("small", (*OVERRIDES, *paths))
        with prepare(config, fresh=True) as prepared:
            measure(prepared, Bounds(arguments.rounds, arguments.max_spread))


def measure(run: Run, bounds: Bounds) -> None:
    """Repeat rounds until the share of the stall is steady, and print the figures."""
    from measure import seconds_of

    from bilm.training.model_inputs import read_inputs
    from bilm.training.step import finish_step, take_step

    with closing(read_inputs(run.parts, 0)) as inputs:

        def step() -> None:
            finish_step(run.parts, take_step(run.parts, run.state, next(inputs)))
            run.state.progress = run.state.progress.after_step()

        def take_round() -> Round:
            taken = Round(steps=[seconds_of(step) for _ in range(STEPS_BETWEEN)])
            taken.stall = seconds_of(run.save)
            while (finished := run.parts.saves.finished()) is None:
                taken.steps_during_save.append(seconds_of(step))
            assert finished.error is None, finished.error
            taken.background = finished.seconds
            step()
            taken.synchronous = seconds_of(run.save) + seconds_of(run.wait_for_save)
            return taken

        take_round()  # warm-up
        taken = steady_rounds(take_round, lambda rounds: [stall_shares(rounds)], bounds)
        report(run, taken, bounds)


def stall_shares(rounds: list[Round]) -> list[float]:
    """Return the stall of each round as a share of its synchronous save."""
    return [taken.stall / taken.synchronous for taken in rounds]


def report(run: Run, rounds: list[Round], bounds: Bounds) -> None:
    """Print one line with the figures of all rounds."""
    from measure import figure

    engine = run.parts.engine
    buffers = run.parts.saves.buffers
    weights, state = (
        engine.weights(buffers["weights"]),
        engine.optimizer_state(buffers["optimizer"]),
    )
    share = summary(stall_shares(rounds), bounds.max_spread)
    figure(
        "checkpoint",
        state_mb=sum(t.nbytes for t in (*weights.values(), *state.values())) / 1e6,
        cores=num_cores(),
        stall_seconds=statistics.median(taken.stall for taken in rounds),
        background_seconds=statistics.median(taken.background for taken in rounds),
        synchronous_seconds=statistics.median(taken.synchronous for taken in rounds),
        stall_share=share.pop("times"),
        **share,
        step_seconds=statistics.median(s for taken in rounds for s in taken.steps),
        step_seconds_during_save=statistics.median(
            s for taken in rounds for s in taken.steps_during_save
        ),
    )


if __name__ == "__main__":
    main()
