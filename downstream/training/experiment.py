"""One experiment: texts, a frozen biLM, representations, and a head for every mix and seed.

The biLM reads every text once, regardless of the number of mixes and seeds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from bilm.embedding.embedder import Embedder
from bilm.errors import ConfigError
from bilm.model.devices import choose_device
from bilm.pretrained.digests import model_digest
from bilm.pretrained.locations import locate
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.batches import Examples, FeatureShape
from downstream.features.drawn_examples import draw_examples
from downstream.features.plain_words import PlainWords
from downstream.features.store import open_stores
from downstream.features.texts_to_layers import tokenize
from downstream.features.word_vectors import WordVectors, check_vectors, vectors_digest
from downstream.heads.head import MixedModel, Predictions
from downstream.heads.saved_head import FileRecord, HeadDescription, HeadInputs
from downstream.settings.common import TaskSettings
from downstream.settings.progress import Progress
from downstream.tasks.scores import mean_and_spread
from downstream.tasks.splits import SPLITS
from downstream.tasks.task import Features, Scores, Task
from downstream.training.fit import History, fit, predict

logger = logging.getLogger(__name__)

AnySettings = TypeVar("AnySettings", bound=TaskSettings)
AnyScores = TypeVar("AnyScores", bound=Scores)


@dataclass(frozen=True)
class Outcome(Generic[AnyScores]):
    """The results of one trained head."""

    mix: str
    seed: int
    history: History
    scores: dict[str, AnyScores]
    shares: dict[str, list[float]]
    gammas: dict[str, float]
    seconds: float

    @property
    def merit(self) -> tuple[float, float]:
        """The main validation score, and the negative validation loss to break ties."""
        loss = self.history.validation_loss[self.history.best_epoch - 1]
        return self.scores["validation"].main, -loss


@dataclass(frozen=True)
class TrainedHead(Generic[AnyScores]):
    """A trained head with its description, its results, and its predictions for the test split."""

    outcome: Outcome[AnyScores]
    model: MixedModel
    description: HeadDescription
    test_predictions: Predictions

    @property
    def num_weights(self) -> int:
        """The number of trained weights."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)


@dataclass
class Results(Generic[AnyScores]):
    """The results of all heads, and the best head by its validation score."""

    task: Any  # the task, which the report of the task reads
    outcomes: list[Outcome[AnyScores]] = field(default_factory=list)
    best: TrainedHead[AnyScores] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    known_words: float | None = None

    def add(self, head: TrainedHead[AnyScores]) -> None:
        """Add the results of a head; keep the head itself if it is the best so far."""
        self.outcomes.append(head.outcome)
        if self.best is None or head.outcome.merit > self.best.outcome.merit:
            self.best = head

    def chosen(self) -> TrainedHead[AnyScores]:
        """Return the best head."""
        if self.best is None:
            raise ValueError("no head has been trained yet")
        return self.best

    def by_mix(self) -> dict[str, list[Outcome[AnyScores]]]:
        """Return the outcomes of each mix, in the order of the seeds."""
        result: dict[str, list[Outcome[AnyScores]]] = {}
        for outcome in self.outcomes:
            result.setdefault(outcome.mix, []).append(outcome)
        return result


def spread_of(outcomes: Sequence[Outcome[Any]], split: str, figure: str) -> tuple[float, float]:
    """Return the mean and standard deviation over seeds of a score such as `accuracy`."""
    return mean_and_spread([getattr(outcome.scores[split], figure) for outcome in outcomes])


@dataclass(frozen=True)
class _Opened:
    """The features of a task, and the records of the files that they come from."""

    features: Features
    shape: FeatureShape
    bilm: FileRecord | None
    vectors: FileRecord | None


def run(
    settings: AnySettings,
    task: Task[AnySettings, AnyScores],
    model_path: Path | None,
    progress: bool | None = None,
) -> Results[AnyScores]:
    """Train and score a head for every mix and seed, on the biLM at `model_path`.

    Without a biLM, the only mix is `none`. Progress bars are shown if `progress` is True, or if it
    is None and stderr is a terminal.
    """
    results: Results[AnyScores] = Results(task)
    start = time.monotonic()
    opened = _open_features(settings, task, model_path, progress)
    results.seconds["representations"] = time.monotonic() - start
    opened = _with_vectors(settings, opened, results)
    plain = opened.features.without_layers() if _reads_words(opened) else opened.features
    examples: dict[bool, dict[str, Examples]] = {}
    for kind in settings.mix.kinds:
        has_mix = kind != "none"
        if has_mix not in examples:  # a head without a mix does not read the layers
            examples[has_mix] = task.examples(settings, opened.features if has_mix else plain)
        for i in range(settings.train.num_seeds):
            seed = settings.train.seed + i
            inputs = HeadInputs(opened.bilm, opened.vectors, opened.shape, kind, seed)
            description = task.describe(settings, inputs)
            head = _train_one(settings, task, description, examples[has_mix], progress)
            results.add(head)
            _log(head.outcome)
    results.seconds["heads"] = sum(outcome.seconds for outcome in results.outcomes)
    return results


def check_heads(
    settings: AnySettings, task: Task[AnySettings, Any], num_layers: int, dim: int
) -> None:
    """Reject word vectors and mixes that do not fit the biLM, before the biLM reads any text."""
    if settings.head.vectors is not None:
        check_vectors(settings.head.vectors)
    shape = FeatureShape(num_layers, dim, 0 if settings.head.vectors is None else 1)
    bilm = FileRecord(path="", digest="")
    for kind in settings.mix.kinds:
        with torch.device("meta"):
            head = task.describe(settings, HeadInputs(bilm, None, shape, kind, 0)).build()
        _check_memory(head)


def _check_memory(head: MixedModel) -> None:
    """Reject a head whose weights, gradients and AdamW moments need more than the memory."""
    needed = 4 * sum(p.numel() * p.element_size() for p in head.parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"training the head needs at least {needed / 1e9:,.0f} GB of memory, but the machine "
            f"has {memory / 1e9:,.0f} GB; reduce the widths of the head, such as --encoder-dim and "
            "--hidden-dim"
        )


def _reads_words(opened: _Opened) -> bool:
    return all(
        isinstance(file, PlainWords) or file.kind == "words"
        for file in opened.features.files.values()
    )


def _open_features(
    settings: AnySettings,
    task: Task[AnySettings, Any],
    model_path: Path | None,
    progress: bool | None,
) -> _Opened:
    """Open the store of each file; the biLM is in memory only during this function."""
    inputs = task.inputs(settings)
    if model_path is None:
        check_heads(settings, task, 0, 0)
        if not inputs.reading.tokenized:
            raise ConfigError("raw texts need the tokenizer of a biLM; set --model")
        words = {
            name: PlainWords.of_texts(tokenize(None, texts, inputs.reading))
            for name, texts in inputs.texts.items()
        }
        return _Opened(Features(words, {}), FeatureShape(0, 0), None, None)
    embedder = Embedder(
        PretrainedBiLm.open(model_path), device=settings.device, precision=settings.precision
    )
    check_heads(settings, task, embedder.num_layers, embedder.dim)
    stores = open_stores(
        settings.cache_dir, inputs.kind, embedder, inputs.texts, inputs.reading, progress
    )
    digest = model_digest(embedder.pretrained)
    bilm = FileRecord(path=locate(model_path).name, digest=digest)
    shape = FeatureShape(embedder.num_layers, embedder.dim)
    return _Opened(Features(stores, {}), shape, bilm, None)


def _with_vectors(settings: TaskSettings, opened: _Opened, results: Results[Any]) -> _Opened:
    """Look up the word vectors of the types of each file."""
    path, files = settings.head.vectors, opened.features.files
    if path is None:
        return opened
    record = FileRecord(path=str(Path(path).resolve()), digest=vectors_digest(path))
    vectors = WordVectors.read(path, sorted({w for file in files.values() for w in file.types}))
    results.known_words = vectors.known_share(files["train"].types)
    if not vectors.rows:
        raise ConfigError(f"no word of the texts has a vector in {path}; use another --vectors")
    tables = {
        name: vectors.look_up(file.types, settings.head.unknown) for name, file in files.items()
    }
    shape = replace(opened.shape, vector_dim=vectors.dim)
    return _Opened(Features(files, tables), shape, opened.bilm, record)


def _train_one(
    settings: TaskSettings,
    task: Task[Any, AnyScores],
    description: HeadDescription,
    examples: dict[str, Examples],
    progress: bool | None,
) -> TrainedHead[AnyScores]:
    start = time.monotonic()
    torch.manual_seed(description.seed)
    model = description.build().to(choose_device(settings.device))
    history = fit(
        model,
        draw_examples(examples["train"], settings.train.share, settings.train.seed),
        examples["validation"],
        settings.head_training,
        description.seed,
        Progress(f"{description.mix_kind}, seed {description.seed}", progress),
    )
    predictions = {split: predict(model, examples[split].source) for split in SPLITS}
    outcome = Outcome(
        mix=description.mix_kind,
        seed=description.seed,
        history=history,
        scores={split: task.score(examples[split].labels, predictions[split]) for split in SPLITS},
        shares=model.shares(),
        gammas=model.scales(),
        seconds=time.monotonic() - start,
    )
    return TrainedHead(outcome, model, description, predictions["test"])


def _log(outcome: Outcome[Any]) -> None:
    logger.info(
        "%s, seed %d: validation %.2f %%, test %.2f %%, %.0f s",
        outcome.mix,
        outcome.seed,
        100 * outcome.scores["validation"].main,
        100 * outcome.scores["test"].main,
        outcome.seconds,
    )
