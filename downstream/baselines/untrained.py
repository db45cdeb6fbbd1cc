"""The head of `downstream.classify` on a biLM of the same shape with random weights.

Its representations are stored in a temporary memory-mapped file in `--cache` or next to the output.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bilm.embedding.embedder import Embedder
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.baselines.baseline import TITLES, Baseline
from downstream.settings.sections import BaselineSettings, Settings
from downstream.tasks.classification import Task
from downstream.training.experiment import check_heads, run


def check_untrained(chosen: BaselineSettings) -> None:
    """Reject a model that cannot be opened, and mixes that it does not have."""
    settings = _settings(chosen)
    embedder = Embedder(PretrainedBiLm.open(Path(settings.model)), device=settings.device)
    any_task = Task({}, ("0", "1"), {})  # the shapes do not depend on the texts
    check_heads(settings, any_task, embedder.num_layers, embedder.dim)


def _settings(chosen: BaselineSettings) -> Settings:
    return Settings.model_validate(chosen.without_vectors().model_dump())


def untrained_bilm(chosen: BaselineSettings, task: Task, progress: bool | None) -> Baseline:
    """Train the head of the chosen settings on an untrained biLM, without word vectors."""
    start = time.process_time()
    settings = _settings(chosen)
    parent = Path(settings.cache or Path(settings.output).parent).resolve()
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".untrained.", dir=parent) as directory:
        model = Path(directory) / "model"
        save_untrained(Path(settings.model), model, settings.train.seed)
        cached = settings.model_copy(update={"cache": str(Path(directory) / "representations")})
        best = run(cached, task, model, progress).chosen().outcome
    parameters: dict[str, Any] = {"mix": best.mix, "head": settings.head.kind}
    cpu_seconds = time.process_time() - start
    return Baseline("untrained", TITLES["untrained"], parameters, best.scores, cpu_seconds)


def save_untrained(source: Path, directory: Path, seed: int) -> None:
    """Write a model with the shape, vocabulary and tokenizer of `source` and random weights."""
    trained = PretrainedBiLm.open(source)
    config = trained.model.config
    torch.manual_seed(seed)
    # Representations need no softmax; a model of word ids needs its vocabulary.
    size = None if config.characters is not None else trained.model.vocabulary_size
    vocabulary = None if size is None else trained.vocabulary
    untrained = PretrainedBiLm(BiLm(config, size), vocabulary, trained.tokenizer)
    untrained.save_pretrained(directory)
