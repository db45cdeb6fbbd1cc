"""The training loop.

Everything random is a function of (seed, step), and so are the batch and the learning rate of
a step. The state of a run is therefore its weights, the optimizer's state, the carried LSTM state
and `Progress`. Regardless of how a run stops, the same command resumes it from the latest intact
checkpoint: on the CPU bit for bit, on a GPU up to sums whose order varies there.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections import deque
from contextlib import nullcontext
from pathlib import Path

import psutil
import torch

from bilm.distributed.process import release_free_memory
from bilm.errors import STOPPED_EXIT_CODE, BilmError, DivergedError, PeerError
from bilm.model.language_model import DIRECTIONS
from bilm.pretrained.file_names import BEST_MODEL_DIRECTORY
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.training.background_saves import take_snapshot
from bilm.training.checkpoints import WEIGHTS
from bilm.training.config import Config
from bilm.training.metrics import MetricsLog
from bilm.training.model_inputs import read_inputs
from bilm.training.optimizers import learning_rate_at
from bilm.training.perplexity import loss_totals, perplexity
from bilm.training.run_parts import RunParts, RunState
from bilm.training.run_record import Progress, RunRecord, StepSums
from bilm.training.step import PendingStep, finish_step, take_step
from bilm.training.step_inputs import StepInputs

logger = logging.getLogger(__name__)


class _Stopped(Exception):
    """A rank was asked to stop during an evaluation."""


def next_commands(config: Config, progress: Progress) -> str:
    """Return a message that names the best model and the commands that use it."""
    run, corpus = shlex.quote(config.train.output_dir), shlex.quote(config.data.corpus)
    if progress.best_step is None:
        return (
            "finished. Nothing was evaluated, so no best model was saved. To export the latest "
            "checkpoint:\n"
            f"  python -m bilm.commands.export {run} --which newest --model MODEL"
        )
    best = shlex.quote(str(Path(config.train.output_dir) / BEST_MODEL_DIRECTORY))
    return (
        f"finished. The best model (step {progress.best_step:,}, held-out perplexity "
        f"{progress.best_perplexity:.2f}) is in {best}. Commands that use it:\n"
        f"  python -m bilm.commands.evaluate --model {best} --corpus {corpus}\n"
        f"  python -m bilm.commands.export {run} --model MODEL --published PUBLISHED\n"
        f"  python -m bilm.commands.embed --model {best} --input TEXT --output VECTORS.hdf5\n"
        f"  python -m downstream.classify --model {best} --train CSV --test CSV --output REPORT"
    )


class Run:
    """A run: its parts, its state and its logs."""

    def __init__(self, parts: RunParts, state: RunState) -> None:
        self.parts, self.state = parts, state
        self.log: MetricsLog | None = None  # of rank 0
        self._pending: deque[PendingStep] = deque()  # steps whose values have not been read

    def loop(self) -> int:
        """Train to the last step, or until asked to stop; return the exit code.

        The last save has ended when this returns or raises an error.
        """
        try:
            return self._train()
        except BaseException as error:
            self._end_save_after(error)
            raise

    def _train(self) -> int:
        parts, state = self.parts, self.state
        num_steps, start = parts.num_steps, state.progress.step
        if parts.ranks.is_first and start >= num_steps:
            logger.info("step %s of %s is already done; nothing to do", start, num_steps)
        inputs = read_inputs(parts, start)
        must_stop = self._evaluate_if_due()
        while state.progress.step < num_steps and not must_stop and not self._is_out_of_patience():
            started = time.monotonic()
            step_inputs = next(inputs)
            waited = time.monotonic() - started
            must_stop = self._take_step(step_inputs, started, waited)
            must_stop = must_stop or self._evaluate_if_due()
            if state.progress.step % parts.config.train.checkpoints.every_steps == 0:
                self.save()
        inputs.close()
        self._finish_steps(num_pending=0)
        self.save()
        self.wait_for_save(is_last=True)
        if not must_stop:
            if parts.ranks.is_first:
                logger.info("%s", next_commands(parts.config, state.progress))
            return 0
        if parts.ranks.is_first:
            logger.info(
                "stopped at step %s (%s); run the same command to resume",
                f"{state.progress.step:,}",
                parts.stop.reason or "requested on another rank",
            )
        return STOPPED_EXIT_CODE

    def _take_step(self, inputs: StepInputs, started: float, waited: float) -> bool:
        """Take a step and log it if due; return whether a rank was asked to stop.

        On an accelerator, the values of a step are read when the next one has been launched, except
        where they are needed now.
        """
        parts, state, log = self.parts, self.state, self.log
        self._log_save()
        is_inspected = self._is_inspection_due() and log is not None
        self._pending.append(take_step(parts, state, inputs, is_inspected))
        is_late = parts.engine.reads_late and not self._are_values_due()
        must_stop = self._finish_steps(num_pending=int(is_late))
        state.progress = state.progress.after_step()
        step = state.progress.step
        if log is not None:
            log.advance()
        parts.ranks.note_step(step)
        state.sums += StepSums(seconds=time.monotonic() - started, waited=waited)
        if step % parts.config.train.log.every_steps == 0 or step == parts.num_steps:
            if log is not None:
                log.train(step, self._training_figures())
            state.sums = StepSums()
        return must_stop

    def _finish_steps(self, num_pending: int) -> bool:
        """Read the values of all steps but the latest `num_pending`; return whether to stop."""
        must_stop = False
        while len(self._pending) > num_pending:
            pending = self._pending.popleft()
            result = finish_step(self.parts, pending)
            if self.log is not None and result.inspector is not None:
                self.log.inspection(pending.step + 1, result.inspector)
            self.state.sums += result.sums
            if result.save_failed:
                self._log_save()
                if self.parts.config.train.checkpoints.on_error == "stop":
                    raise self.parts.saves.failure or PeerError("rank 0 has failed")
            must_stop = must_stop or result.stop
        return must_stop

    def _are_values_due(self) -> bool:
        """Return whether the next step is the last one, or logged, inspected, evaluated or saved.

        The answer is the same on all ranks, which must leave the loop after the same step.
        """
        step, train = self.state.progress.step + 1, self.parts.config.train
        evaluation = train.evaluation.every_steps or self.parts.stream.steps_per_epoch
        intervals = (train.log.every_steps, train.checkpoints.every_steps, evaluation)
        is_due = step == self.parts.num_steps or any(step % every == 0 for every in intervals)
        return is_due or self._is_inspection_due()

    def _is_inspection_due(self) -> bool:
        every = self.parts.config.train.log.histograms_every_steps
        is_due = every is not None and (self.state.progress.step + 1) % every == 0
        return is_due and not self.parts.engine.is_partitioned

    def _training_figures(self) -> dict[str, float]:
        """Return the averages since the last line of metrics.jsonl."""
        parts, sums, lstm = self.parts, self.state.sums, self.state.lstm
        train, model = parts.config.train, parts.config.model
        losses = [loss / sums.predictions for loss in sums.losses]
        label = "sampled" if model.softmax.kind == "sampled" else "training"
        last_step = self.state.progress.step - 1
        figures = {f"loss_{name}": loss for name, loss in zip(DIRECTIONS, losses, strict=False)}
        figures |= {
            f"perplexity_{label}": perplexity(sum(losses) / len(losses)),
            "learning_rate": learning_rate_at(train.optimizer, last_step, parts.num_steps),
            "gradient_norm": sums.gradient_norm / sums.steps,
            "clipped_steps_share": sums.clipped / sums.steps,
            "words_per_second": sums.predictions / max(1e-9, sums.seconds),
            "waiting_for_data_share": sums.waited / max(1e-9, sums.seconds),
            "memory_gib": psutil.Process().memory_info().rss / 2**30,
        }
        if parts.ranks.device.type == "cuda":
            figures["memory_device_gib"] = torch.cuda.max_memory_allocated() / 2**30
        for name, values, limit in (
            ("cells", lstm.cell, model.lstm.cell_clip),
            ("projections", lstm.hidden, model.lstm.projection_clip),
        ):
            if limit is not None:  # at the end of this step, on this rank
                figures[f"clipped_{name}_share"] = float((values.abs() >= limit).double().mean())
        return figures

    def _evaluate_if_due(self) -> bool:
        """Measure held-out perplexity and save the best model; return True if asked to stop."""
        parts, state, step = self.parts, self.state, self.state.progress.step
        every = parts.config.train.evaluation.every_steps or parts.stream.steps_per_epoch
        is_due = step > 0 and (step % every == 0 or step == parts.num_steps)
        if not is_due or state.progress.evaluated_step == step or parts.heldout is None:
            return False
        started = time.monotonic()
        model, device = parts.engine.model, parts.ranks.device
        # An evaluation needs fewer and larger blocks than a step, so neither could reuse the free
        # memory of the other.
        release_free_memory()
        try:
            totals = loss_totals(model, parts.heldout, device, self._check_stop)
        except _Stopped:
            return True  # the resumed run evaluates before its first step
        release_free_memory()
        measured = totals.sum_over_ranks(parts.ranks).perplexity(parts.heldout)
        state.progress = state.progress.after_evaluation(measured.mean)
        if self.log is not None:
            self.log.heldout(step, measured, time.monotonic() - started)
        if state.progress.best_step == step:
            self.wait_for_save()  # both use the same buffers
            self._export_best()
            self.save()  # the best checkpoint is kept, even between the regular ones
        return False

    def _check_stop(self) -> None:
        if self.parts.ranks.any(self.parts.stop.reason is not None):
            raise _Stopped

    def _is_out_of_patience(self) -> bool:
        patience = self.parts.config.train.evaluation.patience
        if patience is None or self.state.progress.evaluations_since_best < patience:
            return False
        if self.parts.ranks.is_first:
            logger.info(
                "held-out perplexity has not improved in %s evaluations; stopping", patience
            )
        return True

    def _export_best(self) -> None:
        config = self.parts.config
        weights = self.parts.engine.weights(self.parts.saves.buffers[WEIGHTS])
        with self.parts.ranks.fail_together():
            if self.parts.ranks.is_first:
                directory = Path(config.train.output_dir) / BEST_MODEL_DIRECTORY
                corpus = self.parts.corpus
                best = PretrainedBiLm.from_weights(
                    config.model, weights, corpus.vocabulary, corpus.tokenizer()
                )
                best.save_files(directory, overwrite=True)

    def save(self) -> None:
        """Start to save a checkpoint, unless nothing has changed since the last one."""
        parts, state = self.parts, self.state
        if state.progress == state.saved:
            return
        requested = time.monotonic()
        self.wait_for_save()
        release_free_memory()
        tensors = take_snapshot(parts.engine, parts.ranks, state.lstm, parts.saves.buffers)
        if parts.ranks.is_first:
            record = RunRecord.of_run(parts.settings, state.progress, state.sums)
            parts.saves.start(tensors, record, requested)
        state.saved = state.progress
        state.sums += StepSums(seconds=time.monotonic() - requested)

    def wait_for_save(self, is_last: bool = False) -> None:
        """Wait until no checkpoint is being written; fail on all ranks if that stops the run."""
        parts = self.parts
        with parts.ranks.fail_together():
            self._log_save(wait=True)
            is_fatal = is_last or parts.config.train.checkpoints.on_error == "stop"
            if parts.saves.failure is not None and is_fatal:
                raise parts.saves.failure

    def _log_save(self, wait: bool = False) -> None:
        """Log a save that has ended; an error that stops the run is raised elsewhere."""
        finished = self.parts.saves.finished(wait)
        if finished is None:
            return
        if finished.path is None:
            if self.parts.config.train.checkpoints.on_error == "continue":
                logger.warning("step %s was not saved: %s", f"{finished.step:,}", finished.error)
        elif self.log is not None:
            times = finished.seconds, finished.stall_seconds
            self.log.checkpoint(finished.step, finished.path, *times)

    def _end_save_after(self, error: BaseException) -> None:
        """Wait for the last save after an error, which is the one that the caller reports."""
        # DeepSpeed's launcher kills the ranks that still run 30 seconds after the first has failed.
        is_on_all_ranks = isinstance(error, DivergedError)
        try:
            with self.parts.ranks.fail_together() if is_on_all_ranks else nullcontext():
                self._log_save(wait=True)
        except BilmError as other:  # the log cannot be written
            logger.warning("%s", other)
        failure, on_error = self.parts.saves.failure, self.parts.config.train.checkpoints.on_error
        if on_error == "stop" and failure is not None and failure is not error:
            logger.warning("the latest checkpoint was not saved: %s", failure)
