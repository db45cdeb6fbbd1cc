"""Measure the parts of a training step: `python benchmarks/step.py --config configs/big.json`

Runs encoder, LSTMs, softmax (each forward and backward), gradient clip and optimizer in one
process, without DeepSpeed, on words drawn from Zipf's law, with the real shapes. Prints one JSON
line per figure: median seconds with their range, and the arithmetic that a perfect implementation
needs, as a share of the product peak (the best square product measured in the same run).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import torch
from measure import figure, product_peak
from rounds import least_disturbed
from torch.nn import functional as F
from zipf import write_zipf_corpus

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch
from bilm.corpus.reader import Corpus
from bilm.distributed.process import keep_freed_memory, num_cores
from bilm.kernels.dropout import active_seed, dropout
from bilm.kernels.sparse_rows import clip_gradients
from bilm.model.language_model import BiLm, training_objective
from bilm.training.config import Config, load_config
from bilm.training.model_inputs import batch_tensors
from bilm.training.optimizers import build_optimizer


def needed_operations(config: Config, rows: int, time_steps: int, num_distinct: int) -> float:
    """Return the operations (two per multiply-add) of a perfect step, forward and backward."""
    model = config.model
    slots = rows * time_steps
    lstm, softmax = model.lstm, model.softmax
    cell = 2 * lstm.projection_dim * 4 * lstm.dim + lstm.dim * lstm.projection_dim
    total = slots * model.num_directions * lstm.num_layers * cell
    negatives = softmax.num_negatives + 1
    total += slots * model.num_directions * negatives * lstm.projection_dim
    if model.characters is not None:
        width = model.characters.num_filters
        total += num_distinct * width * (2 * model.characters.num_highway * width)
        total += num_distinct * width * lstm.projection_dim
    return 2.0 * 3.0 * total  # backward needs two products for each forward product


class Parts:
    """A step in parts, with the graph cut between the parts."""

    def __init__(self, config: Config, corpus: Corpus, rows: int) -> None:
        self.config, self.rows = config, rows
        self.stream = BatchStream(corpus, "train", GlobalBatch(rows, config.data.unroll_steps))
        torch.manual_seed(0)
        self.model = BiLm(config.model, corpus.vocabulary_size).train()
        self.optimizer = build_optimizer(config.train.optimizer, self.model.parameters())
        self.state = self.model.zero_state(rows)
        self.seconds: dict[str, list[float]] = {}

    def timed(self, name: str, function: Callable[[], object]) -> None:
        """Call `function` and record its duration."""
        begun = time.perf_counter()
        function()
        self.seconds.setdefault(name, []).append(time.perf_counter() - begun)

    def step(self, step: int) -> int:
        """Run one step; return the number of distinct words."""
        model = self.model
        assert model.softmax is not None
        softmax = model.softmax
        batch = self.stream.batch(step)
        inputs_of = batch_tensors(batch, self.stream.corpus, self.config.model, torch.device("cpu"))
        words, inverse, targets = inputs_of
        begun = time.perf_counter()
        negatives = model.draw_negatives((0, step))
        self.seconds.setdefault("negatives", []).append(time.perf_counter() - begun)

        begun = time.perf_counter()
        vectors = model.encoder(words)
        leaf = vectors.detach().requires_grad_()
        encoder_forward = time.perf_counter() - begun

        begun = time.perf_counter()
        inputs = F.embedding(inverse.transpose(1, 2), leaf).unbind()
        outputs, state = model.bilstm(inputs, self.state)
        tops = [layers[-1].detach().requires_grad_() for layers in outputs]
        lstm_forward = time.perf_counter() - begun

        def run_softmax() -> None:
            rate, layers = self.config.model.dropout, self.config.model.lstm.num_layers
            seed = active_seed(True, rate)
            dropped = [dropout(top, rate, seed, layers, d) for d, top in enumerate(tops)]
            stacked = torch.stack([top.flatten(0, 1) for top in dropped])
            losses = softmax(stacked, targets.transpose(1, 2).flatten(1), negatives)
            training_objective(losses.sum(dim=1), self.rows).backward()

        self.timed("softmax", run_softmax)
        begun = time.perf_counter()
        torch.autograd.backward([o[-1] for o in outputs], [t.grad for t in tops])
        lstm_backward = time.perf_counter() - begun
        self.seconds.setdefault("lstm", []).append(lstm_forward + lstm_backward)
        begun = time.perf_counter()
        vectors.backward(leaf.grad)
        self.seconds.setdefault("encoder", []).append(encoder_forward + time.perf_counter() - begun)
        self.state = state.detach()
        self.timed(
            "clip",
            lambda: clip_gradients(model.parameters(), self.config.train.max_gradient_norm),
        )
        self.timed("optimizer", self.optimizer.step)
        self.timed("zero_grad", lambda: self.optimizer.zero_grad(set_to_none=True))
        return len(words)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", type=Path, default=Path("configs/small.json"), help="model configuration"
    )
    parser.add_argument(
        "--vocabulary", type=int, default=50_000, help="number of words (default: %(default)s)"
    )
    parser.add_argument(
        "--rows", type=int, default=128, help="rows of the batch (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=4, help="number of steps (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=num_cores(),
        help="threads (default: all cores)",
    )
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_intermixed_args()
    keep_freed_memory()  # like a training process
    torch.set_num_threads(arguments.threads)
    config = load_config(arguments.config, arguments.override)
    with tempfile.TemporaryDirectory() as directory:
        size = arguments.vocabulary
        write_zipf_corpus(Path(directory), 1_000_000, size, size, seed=1)
        settings = Settings(
            arguments.config.stem, arguments.rows, arguments.steps, arguments.threads
        )
        measure(config, Corpus.open(directory), settings)


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement."""

    config_name: str
    rows: int
    steps: int
    threads: int


def measure(config: Config, corpus: Corpus, settings: Settings) -> None:
    """Run some steps and print the time of each part."""
    parts = Parts(config, corpus, settings.rows)
    parts.step(0)  # warm-up
    numbers = itertools.count(1)

    def take_round() -> tuple[float, int, dict[str, float]]:
        parts.seconds.clear()
        peak, distinct = product_peak(repeats=3), parts.step(next(numbers))
        return peak, distinct, {name: values[0] for name, values in parts.seconds.items()}

    taken = least_disturbed(take_round, settings.steps)
    peaks, distinct = [peak for peak, _, _ in taken], [count for _, count, _ in taken]
    seconds = {name: [times[name] for _, _, times in taken] for name in taken[0][2]}
    totals = [sum(times.values()) for _, _, times in taken]
    label = {"config": settings.config_name, "vocabulary": corpus.vocabulary_size}
    label |= {"batch": f"{settings.rows} x {config.data.unroll_steps}"}
    for name, values in {**seconds, "step": totals}.items():
        limits = [round(min(values), 5), round(max(values), 5)]
        figure("step", **label, part=name, seconds=statistics.median(values), range=limits)
    time_steps = config.data.unroll_steps
    needed = needed_operations(config, settings.rows, time_steps, int(statistics.median(distinct)))
    peak, step_seconds = max(peaks), statistics.median(totals)
    figure(
        "step",
        **label,
        threads=settings.threads,
        words_per_second=settings.rows * time_steps / step_seconds,
        distinct_words=int(statistics.median(distinct)),
        peak_gflops=peak / 1e9,
        share_of_peak=needed / peak / step_seconds,
        share_of_near_peak=statistics.median(
            needed / near / total for near, total in zip(peaks, totals, strict=True)
        ),
        memory_gib=psutil.Process().memory_info().rss / 2**30,
    )


if __name__ == "__main__":
    main()
