"""bilm/training/setup."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.corpus.manifest import HELDOUT, TRAIN
from bilm.corpus.reader import Corpus
from bilm.distributed.engine import Engine
from bilm.distributed.ranks import Cluster
from bilm.distributed.signals import StopRequest
from bilm.errors import CheckpointError, ConfigError, CorpusError
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import BiLm
from bilm.pretrained.transfer import initialize_from
from bilm.text.characters import MIN_CHARACTERS
from bilm.training.checkpoints import (
    LSTM_STATE,
    OPTIMIZER,
    WEIGHTS,
    Checkpoint,
    CheckpointStore,
    Progress,
)
from bilm.training.config import Config
from bilm.training.loop import METERS, Run, logger
from bilm.training.metrics import Meters, MetricsLog
from bilm.training.run_directory import locked, open_run, write_config


def train(config: Config, fresh: bool = False) -> int:
    """Train as `config` says; returns the exit code."""
    with _prepared(config, fresh) as (run, stream, num_steps):
        with run.cluster.together():
            if run.cluster.is_first:
                run.log = MetricsLog(Path(config.train.output_dir), run.progress.step, num_steps)
        try:
            return run.loop(stream, num_steps)
        finally:
            if run.log is not None:
                run.log.close()


def dry_run(config: Config) -> int:
    """One optimiser step at the real shapes, in a directory of its own that does not stay."""
    with tempfile.TemporaryDirectory() as directory:
        train = config.train.model_copy(update={"output_dir": directory})
        config = config.model_copy(update={"train": train})
        with _prepared(config, fresh=True) as (run, stream, num_steps):
            parts = [stream.batch(0, micro) for micro in range(stream.accumulation)]
            begun = time.monotonic()
            run.take_step(stream, parts, num_steps)
            seconds = time.monotonic() - begun
            if run.cluster.is_first:
                sums = run.meters.take()
                loss = sum(v for k, v in sums.items() if k.startswith("loss_"))
                memory = psutil.Process().memory_info().rss / 2**30
                logger.info(
                    "one step of %s predictions in %.2f s: loss %.3f, gradient norm %.2f, "
                    "memory %.2f GiB",
                    f"{sums['predictions']:,.0f}",
                    seconds,
                    loss / sums["predictions"] / config.model.num_directions,
                    sums["gradient_norm"],
                    memory,
                )
    return 0


@contextmanager
def _prepared(config: Config, fresh: bool) -> Iterator[tuple[Run, BatchStream, int]]:
    """Everything in its place: ranks, corpus, run directory, model, and where to go on."""
    stop = StopRequest()
    stop.listen()
    cluster = Cluster(config.train.timeout_seconds)
    directory = Path(config.train.output_dir)
    with cluster.naming_lost_ranks():
        with cluster.together():
            corpus = Corpus.open(config.data.corpus)
            stream, heldout = _streams(config, corpus, cluster)
        with locked(directory, cluster):
            store = CheckpointStore(directory / "checkpoints")
            checkpoint = open_run(directory, store, config, corpus, cluster, fresh)
            model = _build_model(config, corpus, cluster, checkpoint)
            engine = Engine(cluster, model, config)
            run = _resume(config, cluster, corpus, engine, store, heldout, stop, checkpoint)
            write_config(directory, config, cluster)
            yield run, stream, _num_steps(config, stream)
    cluster.close()
    stop.outlast_pair()


def _streams(
    config: Config, corpus: Corpus, cluster: Cluster
) -> tuple[BatchStream, BatchStream | None]:
    """The training stream and, if the corpus holds text out, the stream of that."""
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        corpus.verify()  # once per machine; every file, before anything is trained on it
    characters = config.model.characters
    max_characters = characters.max_characters if characters is not None else MIN_CHARACTERS
    batch = GlobalBatch(
        rows=config.deepspeed.train_batch_size,
        unroll=config.data.unroll_steps,
        seed=config.train.seed,
        rows_setting="deepspeed.train_batch_size",
    )
    share = RankShare(cluster.rank, cluster.world, config.deepspeed.gradient_accumulation_steps)
    stream = BatchStream(corpus, TRAIN, batch, share, max_characters=max_characters, verified=True)
    if stream.num_predictions == 0:
        raise CorpusError(f"the corpus {corpus.path} has no training text")
    if HELDOUT not in corpus.splits or not corpus.splits[HELDOUT].sentences:
        if config.train.evaluation.patience is not None:
            raise ConfigError(
                f"train.evaluation.patience is {config.train.evaluation.patience}, but the corpus "
                f"{corpus.path} holds no text out to evaluate on; build it with --heldout"
            )
        if cluster.is_first:
            logger.warning(
                "the corpus holds no text out: no perplexity, no best model (launch/export.py "
                "--which newest exports the newest checkpoint)"
            )
        return stream, None
    batch = GlobalBatch(
        rows=config.train.evaluation.rows,
        unroll=config.data.unroll_steps,
        shuffle=False,
        rows_setting="train.evaluation.rows",
    )
    share = RankShare(cluster.rank, cluster.world)
    return stream, BatchStream(
        corpus, HELDOUT, batch, share, max_characters=max_characters, verified=True
    )


def _num_steps(config: Config, stream: BatchStream) -> int:
    steps = config.train.num_epochs * stream.steps_per_epoch
    return min(steps, config.train.max_steps or steps)


def _build_model(
    config: Config, corpus: Corpus, cluster: Cluster, checkpoint: Checkpoint | None
) -> BiLm:
    """The model with rank 0's weights right; DeepSpeed broadcasts them to the other ranks."""
    torch.manual_seed(config.train.seed)
    model = BiLm(config.model, corpus.vocabulary_size)
    with cluster.together():
        if checkpoint is not None:
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(checkpoint.tensor(WEIGHTS, name, parameter.shape))
        elif cluster.is_first and config.train.init_from is not None:
            initialize_from(model, corpus.vocabulary, Path(config.train.init_from))
    return model.train()


def _resume(
    config: Config,
    cluster: Cluster,
    corpus: Corpus,
    engine: Engine,
    store: CheckpointStore,
    heldout: BatchStream | None,
    stop: StopRequest,
    checkpoint: Checkpoint | None,
) -> Run:
    """The run as it stood when the checkpoint was saved, or at its very start."""
    saved = cluster.broadcast_json(checkpoint.run if checkpoint is not None else None)
    rows = config.deepspeed.train_batch_size
    state = engine.model.zero_state(rows)
    progress, meters = Progress(), Meters()
    if saved is not None:
        known = {field.name for field in dataclasses.fields(Progress)}
        if set(saved.get("progress", {})) != known or "meters" not in saved:
            raise CheckpointError("the checkpoint's run.json lacks what a run goes on from")
        progress, meters = Progress(**saved["progress"]), Meters(saved["meters"])
        wanted = {*METERS, *(f"loss_{d}" for d in range(config.model.num_directions))}
        if meters.sums and set(meters.sums) != wanted:
            raise CheckpointError("the checkpoint's run.json lacks sums since the last line of log")
        read = None
        if checkpoint is not None:
            state = BiLstmState(
                *(
                    checkpoint.tensor(LSTM_STATE, name, zeros.shape)
                    for name, zeros in zip(("cell", "hidden"), state, strict=True)
                )
            )
            read = functools.partial(checkpoint.tensor, OPTIMIZER)
        engine.load_optimizer_state(read, progress.step)
        state = BiLstmState(*(cluster.broadcast(part) for part in state))
    else:
        engine.set_step_count(0)
    mine = rows // cluster.world
    state = state.rows(cluster.rank * mine, (cluster.rank + 1) * mine)
    saved_progress = dataclasses.replace(progress)
    return Run(
        *(config, cluster, corpus, engine, store, heldout, stop),
        *(progress, meters, state, saved_progress),
    )
