"""Set up a run: ranks, corpus, run directory, model, and the state to resume from."""

from __future__ import annotations

import functools
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.corpus.manifest import HELDOUT, TRAIN
from bilm.corpus.reader import Corpus
from bilm.corpus.verification import verify_corpus
from bilm.distributed.engine import Engine, EngineSettings
from bilm.distributed.process import num_cores
from bilm.distributed.ranks import Ranks, Timeouts, join_ranks
from bilm.distributed.signals import StopRequest
from bilm.errors import CheckpointError, ConfigError, CorpusError
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import BiLm
from bilm.pretrained.file_names import BEST_MODEL_DIRECTORY, CHECKPOINTS_DIRECTORY
from bilm.pretrained.transfer import initialize_from
from bilm.text.characters import MIN_CHARACTERS
from bilm.training.background_saves import BackgroundSaves
from bilm.training.checkpoints import (
    LSTM_STATE,
    OPTIMIZER,
    WEIGHTS,
    Checkpoint,
    CheckpointStore,
)
from bilm.training.config import Config
from bilm.training.environment import write_environment
from bilm.training.loop import Run
from bilm.training.metrics import MetricsLog
from bilm.training.model_inputs import read_inputs
from bilm.training.optimizers import STATE_NAMES, build_optimizer
from bilm.training.perplexity import EvaluatedText, evaluation_order
from bilm.training.run_directory import find_checkpoint, lock_run, write_config
from bilm.training.run_parts import RunParts, RunState
from bilm.training.run_record import NO_PROGRESS, RunRecord, StepSums
from bilm.training.run_settings import name_job, settings_of_run
from bilm.training.step import finish_step, take_step
from bilm.training.train import TrainResult

logger = logging.getLogger(__name__)


def run_to_end(
    config: Config,
    on_metrics: Callable[[dict[str, Any]], object] | None,
    fresh: bool,
    allow_changes: bool,
    verify: bool,
) -> TrainResult:
    """Train, or resume the run in `train.output_dir`; see `bilm.train`."""
    directory = Path(config.train.output_dir)
    with prepare(config, fresh, allow_changes, verify) as run:
        with run.parts.ranks.fail_together():
            if run.parts.ranks.is_first:
                start, num_steps = run.state.progress.step, run.parts.num_steps
                run.log = MetricsLog(directory, start, num_steps, on_metrics)
        try:
            is_finished = run.loop() == 0
        finally:
            if run.log is not None:
                run.log.close()
        progress = run.state.progress
    return TrainResult(
        run_directory=directory,
        best_model=None if progress.best_step is None else directory / BEST_MODEL_DIRECTORY,
        best_perplexity=progress.best_perplexity,
        step=progress.step,
        is_finished=is_finished,
    )


def dry_run(config: Config, verify: bool) -> int:
    """Take one optimizer step with the real shapes, in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        section = config.train.model_copy(update={"output_dir": directory})
        config = config.model_copy(update={"train": section})
        with prepare(config, fresh=True, verify=verify, record=False) as run:
            inputs = next(read_inputs(run.parts, 0))
            started = time.monotonic()
            sums = finish_step(run.parts, take_step(run.parts, run.state, inputs)).sums
            seconds = time.monotonic() - started
            if run.parts.ranks.is_first:
                logger.info(
                    "one step of %s predictions in %.2f s: loss %.3f, gradient norm %.2f, "
                    "memory %.2f GiB",
                    f"{sums.predictions:,.0f}",
                    seconds,
                    sum(sums.losses) / sums.predictions / config.model.num_directions,
                    sums.gradient_norm,
                    psutil.Process().memory_info().rss / 2**30,
                )
    return 0


@contextmanager
def prepare(
    config: Config,
    fresh: bool,
    allow_changes: bool = False,
    verify: bool = False,
    record: bool = True,
) -> Iterator[Run]:
    """Join the ranks, open the corpus, lock the run's directory, and build the run.

    With `verify`, every file of the corpus is hashed. With `record`, the files that were verified
    are recorded for the next start.
    """
    stop = StopRequest()
    timeouts = Timeouts(config.train.timeout_seconds, config.train.startup_timeout_seconds)
    with stop.listen(), join_ranks(timeouts, job=name_job(config)) as ranks:
        with ranks.fail_together():
            corpus = open_corpus(config, ranks, verify, record)
            stream = open_train_stream(config, corpus, ranks)
            heldout = open_heldout(config, corpus, ranks)
        steps = config.train.num_epochs * stream.steps_per_epoch
        steps = min(steps, config.train.max_steps or steps)
        is_complete = heldout is None or heldout.is_complete
        settings = settings_of_run(config, corpus.fingerprint, steps, is_complete)
        directory = Path(config.train.output_dir)
        store = CheckpointStore(directory / CHECKPOINTS_DIRECTORY)
        saves = BackgroundSaves(store, config.train.checkpoints.keep_last)
        with lock_run(directory, ranks), saves:
            checkpoint = find_checkpoint(directory, settings, ranks, fresh, allow_changes)
            engine = build_engine(config, build_model(config, corpus, ranks, checkpoint), ranks)
            parts = RunParts(
                config=config,
                ranks=ranks,
                corpus=corpus,
                engine=engine,
                saves=saves,
                stream=stream,
                heldout=heldout,
                stop=stop,
                num_steps=steps,
                settings=settings,
            )
            run = build_run(parts, checkpoint)
            write_config(config, ranks)
            write_environment(directory, ranks, corpus.fingerprint)
            yield run


def open_corpus(config: Config, ranks: Ranks, verify: bool, record: bool) -> Corpus:
    """Return the corpus, verified by the first rank of each machine; see `prepare`."""
    corpus = Corpus.open(config.data.corpus)
    if ranks.is_first_on_machine:
        verify_corpus(
            corpus,
            full=verify,
            num_threads=num_cores(),  # the other ranks are waiting
            record=record,
            write_line=logger.info if ranks.is_first else None,
        )
    corpus.tokenizer()  # fails now if its package, which the best model needs, is missing
    return corpus


def open_train_stream(config: Config, corpus: Corpus, ranks: Ranks) -> BatchStream:
    """Return this rank's batches of the training split."""
    batch = GlobalBatch(
        rows=config.deepspeed.train_batch_size,
        unroll=config.data.unroll_steps,
        seed=config.train.seed,
        rows_setting="deepspeed.train_batch_size",
    )
    share = RankShare(ranks.rank, ranks.world, config.deepspeed.gradient_accumulation_steps)
    characters = _max_characters(config)
    stream = BatchStream(corpus, TRAIN, batch, share, max_characters=characters, verified=True)
    if stream.num_predictions == 0:
        raise CorpusError(f"the corpus {corpus.path} has no training text; build it with more text")
    return stream


def open_heldout(config: Config, corpus: Corpus, ranks: Ranks) -> EvaluatedText | None:
    """Return the held-out text to evaluate on; None if the corpus has none."""
    evaluation = config.train.evaluation
    if HELDOUT not in corpus.splits or not corpus.splits[HELDOUT].sentences:
        if evaluation.patience is not None:
            raise ConfigError(
                f"train.evaluation.patience is {evaluation.patience}, but the corpus {corpus.path} "
                "has no held-out split to evaluate on; build it with --heldout"
            )
        if ranks.is_first:
            logger.warning(
                "this corpus has no held-out split, so perplexity is not measured and no best "
                "model is saved; export the latest checkpoint with `bilm export --which "
                "newest`"
            )
        return None
    batch = GlobalBatch(
        rows=evaluation.rows,
        unroll=config.data.unroll_steps,
        rows_setting="train.evaluation.rows",
    )
    batch, num_steps = evaluation_order(corpus.split(HELDOUT), batch, evaluation.max_words)
    share = RankShare(ranks.rank, ranks.world)
    characters = _max_characters(config)
    stream = BatchStream(corpus, HELDOUT, batch, share, max_characters=characters, verified=True)
    return EvaluatedText(stream, num_steps)


def _max_characters(config: Config) -> int:
    characters = config.model.characters
    return MIN_CHARACTERS if characters is None else characters.max_characters


def build_model(
    config: Config, corpus: Corpus, ranks: Ranks, checkpoint: Checkpoint | None
) -> BiLm:
    """Return the model, with its weights set on rank 0; DeepSpeed broadcasts them."""
    torch.manual_seed(config.train.seed)
    model = BiLm(config.model, corpus.vocabulary_size)
    model.training_precision = config.train.precision
    with ranks.fail_together():
        if checkpoint is not None:
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(checkpoint.tensor(WEIGHTS, name, parameter.shape))
        elif ranks.is_first and config.train.init_from is not None:
            initialize_from(model, corpus.vocabulary, Path(config.train.init_from))
    return model.train().to(ranks.device)


def build_engine(config: Config, model: BiLm, ranks: Ranks) -> Engine:
    """Return the engine of a model, with the configured optimizer."""
    settings = EngineSettings(
        deepspeed=deepspeed_settings(config),
        stage=config.deepspeed.zero_optimization.stage,
        max_gradient_norm=config.train.max_gradient_norm,
        state_names=STATE_NAMES[config.train.optimizer.name],
    )
    make_optimizer = functools.partial(build_optimizer, config.train.optimizer)
    return Engine(ranks, model, make_optimizer, settings)


def deepspeed_settings(config: Config) -> dict[str, Any]:
    """Return DeepSpeed's configuration: its section, and values derived from other sections."""
    section = config.deepspeed.model_dump(mode="json", exclude_none=True)
    # DeepSpeed's own timer would wait for the device twice in every step.
    section["timers"] = {"throughput": {"enabled": False}}
    section["gradient_clipping"] = 0.0  # set explicitly, since DeepSpeed clips at 1.0 by default
    if config.deepspeed.zero_optimization.stage > 0:
        section["gradient_clipping"] = config.train.max_gradient_norm or 0.0
        section["zero_allow_untested_optimizer"] = True
    return section


def build_run(parts: RunParts, checkpoint: Checkpoint | None) -> Run:
    """Return a new run, or one restored from `checkpoint`, which only rank 0 passes."""
    ranks, engine, rows = parts.ranks, parts.engine, parts.config.deepspeed.train_batch_size
    lstm = engine.model.zero_state(rows)
    tree = ranks.broadcast_json(None if checkpoint is None else checkpoint.record.to_json())
    progress, sums = NO_PROGRESS, StepSums()
    if tree is None:
        engine.set_step_count(0)
    else:
        record = RunRecord.from_json(tree, "rank 0's run.json")
        progress, sums = record.progress, record.meters
        if sums.losses and len(sums.losses) != parts.config.model.num_directions:
            raise CheckpointError(
                f'the checkpoint\'s run.json has {len(sums.losses)} loss sums in "meters", but '
                f"the model has {parts.config.model.num_directions} directions"
            )
        read = None
        if checkpoint is not None:
            read = functools.partial(checkpoint.tensor, OPTIMIZER)
            lstm = BiLstmState(
                checkpoint.tensor(LSTM_STATE, "cell", lstm.cell.shape),
                checkpoint.tensor(LSTM_STATE, "hidden", lstm.hidden.shape),
            )
        engine.load_optimizer_state(read, progress.step)
        lstm = BiLstmState(ranks.broadcast(lstm.cell), ranks.broadcast(lstm.hidden))
    own_rows = rows // ranks.world
    lstm = lstm.rows(ranks.rank * own_rows, (ranks.rank + 1) * own_rows)
    return Run(parts, RunState(progress=progress, sums=sums, lstm=lstm, saved=progress))
