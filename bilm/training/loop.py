"""Training a biLM: the loop, from the corpus to the exported model.

Everything random is a function of (seed, step, rank), the batch of a step is a function of its
number, and the learning rate too; so a run's whole memory is its weights, the optimiser's sums, the
carried LSTM states and the step. Whatever stops a run, the same command goes on from the newest
whole checkpoint, bit for bit.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import Tensor

from bilm.corpus.batches import Batch, BatchStream
from bilm.corpus.manifest import HELDOUT
from bilm.corpus.reader import Corpus
from bilm.distributed.engine import Engine
from bilm.distributed.process import give_back_memory
from bilm.distributed.ranks import Cluster
from bilm.distributed.signals import StopRequest
from bilm.errors import DivergedError
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import DIRECTIONS, training_objective
from bilm.pretrained.model_directory import BEST_MODEL_DIRECTORY, PretrainedBiLm
from bilm.training.checkpoints import (
    LSTM_STATE,
    OPTIMIZER,
    WEIGHTS,
    CheckpointStore,
    Progress,
)
from bilm.training.config import Config
from bilm.training.metrics import Meters, MetricsLog
from bilm.training.optimizers import learning_rate_at
from bilm.training.perplexity import loss_sums, perplexity, perplexity_of
from bilm.training.run_directory import deciding_settings
from bilm.training.step import StepInspector, _seed_of, _to, batch_tensors

logger = logging.getLogger(__name__)

METERS = ("predictions", "gradient_norm", "clipped", "steps", "seconds", "waited")

STOPPED_EXIT_CODE = 75  # saved after a signal; the same command goes on from there


class _Stopped(Exception):
    """Some rank was asked to stop in the middle of an evaluation."""


@dataclass
class Run:
    """The parts of a run, and what happens to them step by step."""

    config: Config
    cluster: Cluster
    corpus: Corpus
    engine: Engine
    store: CheckpointStore
    heldout: BatchStream | None
    stop: StopRequest
    progress: Progress
    meters: Meters
    state: BiLstmState
    saved: Progress  # as the newest checkpoint has it
    log: MetricsLog | None = None  # of rank 0

    def loop(self, stream: BatchStream, num_steps: int) -> int:
        """Train to the last step, or to a request to stop; returns the exit code."""
        train, progress = self.config.train, self.progress
        evaluate_every = train.evaluation.every_steps or stream.steps_per_epoch
        if self.cluster.is_first and progress.step >= num_steps:
            logger.info("at step %s of %s already: nothing to do", progress.step, num_steps)
        batches = stream.read(
            progress.step, max(progress.step, num_steps), workers=self.config.data.num_workers
        )
        must_stop = self._evaluate_if_due(evaluate_every, num_steps)
        while progress.step < num_steps and not must_stop and not self._is_out_of_patience():
            begun = time.monotonic()
            parts = [next(batches) for _ in range(stream.accumulation)]
            waited = time.monotonic() - begun

            # ---- one optimiser step
            must_stop = self.take_step(stream, parts, num_steps)
            progress.step += 1
            # ----

            self.cluster.note_step(progress.step)

            self.meters.add(steps=1.0, seconds=time.monotonic() - begun, waited=waited)
            if progress.step % train.log.every_steps == 0 or progress.step == num_steps:
                self._log_training(num_steps)
            must_stop = must_stop or self._evaluate_if_due(evaluate_every, num_steps)
            if progress.step % train.checkpoints.every_steps == 0:
                self._save()
        batches.close()
        self._save()
        if not must_stop:
            return 0
        if self.cluster.is_first:
            logger.info(
                "stopped at step %s (%s); the same command goes on from there",
                f"{progress.step:,}",
                self.stop.reason or "asked on another rank",
            )
        return STOPPED_EXIT_CODE

    def take_step(self, stream: BatchStream, parts: list[Batch], num_steps: int) -> bool:
        """Forward, backward, clip, update; returns whether some rank was asked to stop."""
        config, step, seed = self.config, self.progress.step, self.config.train.seed
        rows = self.state.cell.shape[2] // len(parts)
        negatives = _to(self.engine.model.draw_negatives((seed, step)), self.cluster.device)
        sums, states = torch.zeros(config.model.num_directions, dtype=torch.float64), []
        for part in parts:
            inputs = batch_tensors(part, self.corpus, config.model, self.cluster.device)
            before = self.state.rows(part.micro * rows, (part.micro + 1) * rows)
            torch.manual_seed(_seed_of(seed, step, self.cluster.rank, part.micro))
            with self.engine.autocast():
                losses, after = self.engine(*inputs, before, negatives)
            self.engine.backward(training_objective(losses, rows))
            if part is not parts[-1]:
                self.engine.next_micro_batch()
            sums += losses.detach().double().cpu()
            states.append(after.detach())
        self.state = BiLstmState.join_rows(states)

        # What all ranks must agree on before anything is updated: finite losses, and stopping.
        predictions = float(sum(part.num_predictions for part in parts))
        said = torch.tensor([*sums.tolist(), predictions, float(self.stop.reason is not None)])
        everyone = self.cluster.gather(said.double()).cpu()  # (world, directions + 2)
        self._refuse_non_finite(everyone[:, :-2], stream)
        inspector = self._inspector()
        norm = self.engine.step(learning_rate_at(config.train.optimizer, step, num_steps))
        if not math.isfinite(norm):
            raise DivergedError(f"the gradient norm of step {step + 1} is {norm}")
        if inspector is not None and self.log is not None:
            self.log.inspected(step + 1, inspector)
        limit = config.train.max_gradient_norm
        self.meters.add(
            predictions=float(everyone[:, -2].sum()),
            gradient_norm=norm,
            clipped=float(limit is not None and norm > limit),
            **{f"loss_{d}": float(v) for d, v in enumerate(everyone[:, :-2].sum(dim=0))},
        )
        return bool(everyone[:, -1].any())

    def _inspector(self) -> StepInspector | None:
        every = self.config.train.log.histograms_every_steps
        is_due = every is not None and (self.progress.step + 1) % every == 0
        if not is_due or self.log is None or self.engine.is_partitioned:
            return None
        return StepInspector(self.engine.model)

    def _refuse_non_finite(self, losses: Tensor, stream: BatchStream) -> None:
        """Stop all ranks if the loss of one is no number: (world, directions)."""
        bad = torch.nonzero(~torch.isfinite(losses).all(dim=1)).flatten().tolist()
        if not bad:
            return
        rank, step = bad[0], self.progress.step
        rows = self.config.deepspeed.train_batch_size // self.cluster.world
        places = {
            str(place) for row in range(rows) for place in stream.locate(step, rank * rows + row)
        }
        listed = "; ".join(sorted(places)[:5])
        raise DivergedError(
            f"the loss of step {step + 1} on rank {rank} is {losses[rank].tolist()}; nothing was "
            f"updated. Its rows came from: {listed}" + (" ..." if len(places) > 5 else "")
        )

    def _log_training(self, num_steps: int) -> None:
        sums, step = self.meters.take(), self.progress.step
        if self.log is None:
            return
        train, model = self.config.train, self.config.model
        losses = [sums[f"loss_{d}"] / sums["predictions"] for d in range(model.num_directions)]
        label = "sampled" if model.softmax.kind == "sampled" else "training"
        figures = {f"loss_{name}": loss for name, loss in zip(DIRECTIONS, losses, strict=False)}
        figures |= {
            f"perplexity_{label}": perplexity(sum(losses) / len(losses)),
            "learning_rate": learning_rate_at(train.optimizer, step - 1, num_steps),
            "gradient_norm": sums["gradient_norm"] / sums["steps"],
            "clipped_steps_share": sums["clipped"] / sums["steps"],
            "words_per_second": sums["predictions"] / max(1e-9, sums["seconds"]),
            "waiting_for_data_share": sums["waited"] / max(1e-9, sums["seconds"]),
            "memory_gib": psutil.Process().memory_info().rss / 2**30,
        }
        if self.cluster.device.type == "cuda":
            figures["memory_device_gib"] = torch.cuda.max_memory_allocated() / 2**30
        for name, part, limit in (
            ("cells", self.state.cell, model.lstm.cell_clip),
            ("projections", self.state.hidden, model.lstm.projection_clip),
        ):
            if limit is not None:  # as they stand at the end of this step, on this rank
                figures[f"clipped_{name}_share"] = float((part.abs() >= limit).double().mean())
        self.log.train(step, figures)

    def _evaluate_if_due(self, every: int, num_steps: int) -> bool:
        """Held-out perplexity, and the best model by it; returns whether to stop instead."""
        progress, step = self.progress, self.progress.step
        is_due = step > 0 and (step % every == 0 or step == num_steps)
        if not is_due or progress.evaluated_step == step or self.heldout is None:
            return False
        begun = time.monotonic()
        model, cluster = self.engine.model, self.cluster
        try:
            sums = loss_sums(model, self.heldout, cluster.device, self._check_stop)
        except _Stopped:
            return True  # not evaluated: a resumed run evaluates first
        totals = cluster.gather(sums).cpu().sum(dim=0)
        found = perplexity_of(totals, self.corpus, HELDOUT)
        progress.evaluated_step = step
        progress.evaluations_since_best += 1
        if self.log is not None:
            self.log.heldout(step, found, time.monotonic() - begun)
        if progress.best_perplexity is None or found.mean < progress.best_perplexity:
            progress.best_step, progress.best_perplexity = step, found.mean
            progress.evaluations_since_best = 0
            self._export_best()
            self._save()  # the best one is kept, wherever the other checkpoints fall
        return False

    def _check_stop(self) -> None:
        if self.cluster.any(self.stop.reason is not None):
            raise _Stopped

    def _is_out_of_patience(self) -> bool:
        patience = self.config.train.evaluation.patience
        is_out = patience is not None and self.progress.evaluations_since_best >= patience
        if is_out and self.cluster.is_first:
            logger.info("no better held-out perplexity in %s evaluations: done", patience)
        return is_out

    def _export_best(self) -> None:
        weights = self.engine.weights()
        with self.cluster.together():
            if self.cluster.is_first:
                directory = Path(self.config.train.output_dir) / BEST_MODEL_DIRECTORY
                best = PretrainedBiLm.from_weights(
                    self.config.model, weights, self.corpus.vocabulary, self.corpus.tokenizer()
                )
                best.save_pretrained(directory, overwrite=True)

    def _save(self) -> None:
        """Save a checkpoint, unless the last one says all there is to say."""
        if self.progress == self.saved:
            return
        begun = time.monotonic()
        cell, hidden = (self.cluster.gather_rows(part, dim=2) for part in self.state)
        tensors = {
            WEIGHTS: self.engine.weights(),
            OPTIMIZER: self.engine.optimizer_state(),
            LSTM_STATE: {"cell": cell.cpu(), "hidden": hidden.cpu()},
        }
        with self.cluster.together():
            if self.cluster.is_first:
                run = {
                    "settings": deciding_settings(self.config),
                    "corpus": self.corpus.fingerprint,
                    "progress": dataclasses.asdict(self.progress),
                    "meters": self.meters.sums,
                }
                saved = self.store.save(self.progress.step, tensors, run)
                keep = self.config.train.checkpoints.keep_last
                self.store.prune(saved, keep, self.progress.best_step)
                if self.log is not None:
                    self.log.checkpoint(saved.step, saved.path, time.monotonic() - begun)
        self.saved = dataclasses.replace(self.progress)
        del tensors
        give_back_memory()
