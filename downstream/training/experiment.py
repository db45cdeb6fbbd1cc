"""One experiment: texts, a frozen biLM, representations, and a head for every mix and seed.

The biLM reads every text once, regardless of the number of mixes and seeds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bilm.embedding.embedder import Embedder
from bilm.errors import ConfigError
from bilm.model.devices import choose_device
from bilm.pretrained.digests import model_digest
from bilm.pretrained.locations import locate
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.batches import Examples, FeatureShape, Subset, make_source
from downstream.features.store import Store, open_stores
from downstream.features.texts_to_layers import TextReading, poolings_of
from downstream.features.word_vectors import Table, WordVectors, check_vectors, vectors_digest
from downstream.heads.saved_head import Description, FileRecord, make_model
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.progress import Progress
from downstream.settings.sections import Settings
from downstream.tasks.classification import SPLITS, Task
from downstream.tasks.scores import Scores, mean_and_spread, score
from downstream.training.fit import History, fit, predict_probabilities

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The results of one trained head."""

    mix: str
    seed: int
    history: History
    scores: dict[str, Scores]
    shares: dict[str, list[float]]
    gammas: dict[str, float]
    seconds: float

    @property
    def merit(self) -> tuple[float, float]:
        """The validation accuracy, and the negative validation loss to break ties."""
        loss = self.history.validation_loss[self.history.best_epoch - 1]
        return self.scores["validation"].accuracy, -loss


@dataclass(frozen=True)
class TrainedHead:
    """A trained head with its description and its results."""

    outcome: Outcome
    model: TextModel
    description: Description


@dataclass
class Results:
    """The results of all heads, and the best head by validation accuracy."""

    task: Task
    outcomes: list[Outcome] = field(default_factory=list)
    best: TrainedHead | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    known_words: float | None = None

    def add(self, head: TrainedHead) -> None:
        """Add the results of a head; keep the head itself if it is the best so far."""
        self.outcomes.append(head.outcome)
        if self.best is None or head.outcome.merit > self.best.outcome.merit:
            self.best = head

    def chosen(self) -> TrainedHead:
        """Return the best head."""
        if self.best is None:
            raise ValueError("no head has been trained yet")
        return self.best

    def by_mix(self) -> dict[str, list[Outcome]]:
        """Return the outcomes of each mix, in the order of the seeds."""
        result: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            result.setdefault(outcome.mix, []).append(outcome)
        return result


def spread_of(outcomes: list[Outcome], split: str, figure: str) -> tuple[float, float]:
    """Return the mean and standard deviation over seeds of a score such as `accuracy`."""
    return mean_and_spread([getattr(outcome.scores[split], figure) for outcome in outcomes])


@dataclass(frozen=True)
class _Features:
    """The representations of the files of a task, and the word vectors of their types."""

    bilm: FileRecord
    stores: dict[str, Store]
    vectors: FileRecord | None
    tables: dict[str, Table]  # empty without word vectors

    @property
    def vector_dim(self) -> int:
        return self.tables["train"].shape[1] if self.tables else 0


def run(settings: Settings, task: Task, model_path: Path, progress: bool | None = None) -> Results:
    """Train and score a head for every mix and seed, on the biLM at `model_path`.

    Progress bars are shown if `progress` is True, or if it is None and stderr is a terminal.
    """
    results = Results(task)
    start = time.monotonic()
    bilm, stores = _representations(settings, task, model_path, progress)
    results.seconds["representations"] = time.monotonic() - start
    features = _with_vectors(settings, bilm, stores, results)
    examples = _examples(settings, task, features)
    for description in _descriptions(settings, task, features):
        head = _train_one(settings, description, examples, progress)
        results.add(head)
        outcome = head.outcome
        logger.info(
            "%s, seed %d: validation %.2f %%, test %.2f %%, %.0f s",
            outcome.mix,
            outcome.seed,
            100 * outcome.scores["validation"].accuracy,
            100 * outcome.scores["test"].accuracy,
            outcome.seconds,
        )
    results.seconds["heads"] = sum(outcome.seconds for outcome in results.outcomes)
    return results


def check_heads(settings: Settings, num_layers: int, dim: int) -> None:
    """Reject word vectors and mixes that do not fit the biLM, before the biLM reads any text."""
    if settings.head.vectors is not None:
        check_vectors(settings.head.vectors)
    vector_dim = 0 if settings.head.vectors is None else 1
    shape = FeatureShape(num_layers, dim, vector_dim, len(poolings_of(settings.head.kind)))
    with torch.device("meta"):
        for kind in settings.mix.kinds:
            TextModel(MixKind.parse(kind), settings.mix, settings.head, shape, num_classes=2)


def _representations(
    settings: Settings, task: Task, model_path: Path, progress: bool | None
) -> tuple[FileRecord, dict[str, Store]]:
    """Open the store of each file; the biLM is in memory only during this function."""
    embedder = Embedder(
        PretrainedBiLm.open(model_path), device=settings.device, precision=settings.precision
    )
    check_heads(settings, embedder.num_layers, embedder.dim)
    stores = open_stores(
        settings.cache_dir,
        settings.head.mode,
        embedder,
        {name: file.texts for name, file in task.files.items()},
        TextReading(settings.data.tokenized, settings.data.max_words),
        progress,
    )
    digest = model_digest(embedder.pretrained)
    return FileRecord(path=locate(model_path).name, digest=digest), stores


def _with_vectors(
    settings: Settings, bilm: FileRecord, stores: dict[str, Store], results: Results
) -> _Features:
    """Look up the word vectors of the types of each store."""
    path = settings.head.vectors
    if path is None:
        return _Features(bilm, stores, None, {})
    record = FileRecord(path=str(Path(path).resolve()), digest=vectors_digest(path))
    vectors = WordVectors.read(path, sorted({w for s in stores.values() for w in s.types}))
    results.known_words = vectors.known_share(stores["train"].types)
    if not vectors.rows:
        raise ConfigError(f"no word of the texts has a vector in {path}; use another --vectors")
    tables = {
        name: vectors.look_up(store.types, settings.head.unknown) for name, store in stores.items()
    }
    return _Features(bilm, stores, record, tables)


def _examples(settings: Settings, task: Task, features: _Features) -> dict[str, Examples]:
    """Return the texts and labels of each split."""
    sources = {
        name: make_source(store, settings.head.kind, features.tables.get(name))
        for name, store in features.stores.items()
    }
    return {
        name: Examples(Subset(sources[split.file], split.places), split.labels)
        for name, split in task.splits.items()
    }


def _descriptions(settings: Settings, task: Task, features: _Features) -> Iterator[Description]:
    """Yield the description of every head to train."""
    for kind in settings.mix.kinds:
        for i in range(settings.train.num_seeds):
            yield Description(
                format="bilm-classifier",
                version=1,
                bilm=features.bilm,
                vectors=features.vectors,
                vector_dim=features.vector_dim,
                classes=task.classes,
                mix_kind=kind,
                mix=settings.mix,
                head=settings.head,
                num_layers=features.stores["train"].num_layers,
                dim=features.stores["train"].dim,
                tokenized=settings.data.tokenized,
                max_words=settings.data.max_words,
                seed=settings.train.seed + i,
            )


def _train_one(
    settings: Settings,
    description: Description,
    examples: dict[str, Examples],
    progress: bool | None,
) -> TrainedHead:
    start = time.monotonic()
    torch.manual_seed(description.seed)
    model = make_model(description).to(choose_device(settings.device))
    history = fit(
        model,
        examples["train"],
        examples["validation"],
        settings.head_training,
        description.seed,
        Progress(f"{description.mix_kind}, seed {description.seed}", progress),
    )
    scores = {}
    for split in SPLITS:
        predicted = predict_probabilities(model, examples[split].source).argmax(axis=1)
        scores[split] = score(examples[split].labels, predicted, description.classes)
    outcome = Outcome(
        mix=description.mix_kind,
        seed=description.seed,
        history=history,
        scores=scores,
        shares=model.shares(),
        gammas=model.scales(),
        seconds=time.monotonic() - start,
    )
    return TrainedHead(outcome, model, description)
