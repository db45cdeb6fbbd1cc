"""Checks of whole runs: one rank and several, and a resumed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bilm.commands.gpu_checks.rows import (
    TOLERANCES,
    Figure,
    NotRun,
    Setting,
    difference_figure,
    greatest_difference,
)
from bilm.corpus.manifest import VOCABULARY_FILE
from bilm.corpus.writer import SplitWriter, write_lexicon, write_manifest
from bilm.files.writing import write_text
from bilm.pretrained.file_names import CHECKPOINTS_DIRECTORY
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.tokenizers import TokenizerSpec
from bilm.training.checkpoints import TENSOR_FILES, CheckpointStore
from bilm.training.train import train

SENTENCE_WORDS = 20
STEPS = 4
CPU_RANKS = 2
TIMEOUT_SECONDS = 400


def require_training(setting: Setting) -> None:
    """Raise `NotRun` if runs cannot use the device."""
    if setting.device.type == "mps":
        raise NotRun("runs use the CPU on this machine")
    if setting.device.index:
        raise NotRun("a run of one rank uses the first GPU; set CUDA_VISIBLE_DEVICES instead")


def write_zipf_corpus(directory: Path, num_types: int, num_words: int) -> Path:
    """Write a corpus of random words whose frequencies follow Zipf's law, unless it exists."""
    if directory.exists():
        return directory
    directory.mkdir(parents=True)
    types = [*SPECIAL_WORDS, *(f"{i * 7919 % 999983:x}{'aeiou'[i % 5]}" for i in range(num_types))]
    types = list(dict.fromkeys(types))
    write_text(directory / VOCABULARY_FILE, "".join(f"{word}\n" for word in types))
    first = len(SPECIAL_WORDS)
    weights = 1.0 / np.arange(1, len(types) - first + 1)
    draw = np.random.default_rng(0).choice
    ids = draw(np.arange(first, len(types)), num_words, p=weights / weights.sum())
    counts = np.bincount(ids, minlength=len(types)).astype(np.int64)
    write_lexicon(directory, (word.encode() for word in types), counts)
    writer = SplitWriter(directory, "train", 1_000_000, 8192)
    lengths = np.full(num_words // SENTENCE_WORDS, SENTENCE_WORDS, dtype=np.int32)
    writer.add(ids[: lengths.sum()].astype(np.int32), lengths)
    write_manifest(
        directory,
        tokenizer=TokenizerSpec(name="whitespace"),
        options={"seed": 0},
        vocabulary_size=len(types),
        splits={"train": writer.close()},
    )
    return directory


def equal_ranks(setting: Setting) -> Figure:
    """Compare a run on all GPUs with a run on one (on a CPU: two ranks with one)."""
    require_training(setting)
    is_cpu = setting.device.type == "cpu"
    count = CPU_RANKS if is_cpu else torch.accelerator.device_count()
    if count == 1:
        raise NotRun("this machine has one GPU")
    one = setting.directory / "one"
    several = setting.directory / "several"
    train(_settings(setting, one, count, STEPS))
    config = setting.directory / "several.json"
    write_text(config, json.dumps(_settings(setting, several, count, STEPS)))
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}  # of this process
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(count), "-m", "bilm.commands.pretrain"),
            *("--config", str(config)),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # ranks that are left after a timeout
    if process.returncode:
        print(errors, file=sys.stderr)
        raise RuntimeError(f"exit code {process.returncode}; the errors are on standard error")
    return _compare_runs(one, several, f"; 1 and {count} ranks, {STEPS} steps")


def resumed_run(setting: Setting) -> Figure:
    """Compare a run that was stopped and resumed with one that was not."""
    require_training(setting)
    whole, resumed = setting.directory / "whole", setting.directory / "resumed"
    train(_settings(setting, whole, 1, STEPS))
    for steps in (STEPS // 2, STEPS):
        train(_settings(setting, resumed, 1, steps))
    return _compare_runs(whole, resumed, f"; resumed after {STEPS // 2} of {STEPS} steps")


def _settings(setting: Setting, output: Path, ranks: int, steps: int) -> dict[str, Any]:
    """Return the configuration of a tiny run with a sampled softmax and dropout."""
    corpus = write_zipf_corpus(setting.directory / "tiny_corpus", 300, 8000)
    return {
        "model": {
            "characters": {"embedding_dim": 4, "filters": [[1, 8], [3, 24]], "num_highway": 1},
            "lstm": {"dim": 64, "projection_dim": 16, "num_layers": 2},
            "softmax": {"num_negatives": 50},
        },
        "data": {"corpus": str(corpus), "unroll_steps": 10},
        "train": {"output_dir": str(output), "max_steps": steps, "timeout_seconds": 120},
        "deepspeed": {"train_batch_size": 4 * ranks},
    }


def _compare_runs(first: Path, second: Path, note: str) -> Figure:
    """Compare all tensors of the newest checkpoints of two runs."""
    one, other = (CheckpointStore(run / CHECKPOINTS_DIRECTORY).newest() for run in (first, second))
    if one is None or other is None:
        raise RuntimeError("a run has saved no checkpoint")
    if one.record.step != other.record.step:
        raise RuntimeError(f"the runs ended at steps {one.record.step} and {other.record.step}")
    differences = {
        f"{file}/{name}": greatest_difference(other.tensor(file, name), one.tensor(file, name))
        for file in TENSOR_FILES
        for name in sorted(one.names(file))
    }
    return difference_figure(differences, TOLERANCES["float32"], note)
