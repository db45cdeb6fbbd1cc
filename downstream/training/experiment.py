"""One run: texts, a frozen biLM, representations, then a head for every mix and seed.

The biLM reads every text once, whatever the number of mixes and seeds; the rest is `training`.
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
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.batches import Source, Subset, make_source
from downstream.features.store import Store, open_store
from downstream.features.word_vectors import Table, WordVectors, vectors_digest
from downstream.heads.saved_head import Description, FileRecord, make_model
from downstream.heads.text_model import TextModel
from downstream.settings.sections import Settings
from downstream.tasks.classification import SPLITS, Task
from downstream.tasks.scores import Scores, mean_and_spread, score
from downstream.training.fit import History, fit, predict_probabilities

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """One head, trained."""

    mix: str
    seed: int
    history: History
    scores: dict[str, Scores]
    shares: dict[str, list[float]]
    gammas: dict[str, float]
    seconds: float


@dataclass
class Results:
    """All heads of a run, and the best of them by validation accuracy."""

    task: Task
    outcomes: list[Outcome] = field(default_factory=list)
    best: Outcome | None = None
    best_model: TextModel | None = None
    description: Description | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    known_words: float | None = None

    def add(self, outcome: Outcome, model: TextModel, description: Description) -> None:
        """Keep an outcome, and its model if it is the best so far."""
        self.outcomes.append(outcome)
        if self.best is None or _merit(outcome) > _merit(self.best):
            self.best, self.best_model, self.description = outcome, model, description

    def chosen(self) -> tuple[Outcome, TextModel, Description]:
        """The best head: what it gave, itself, and what it is."""
        if self.best is None or self.best_model is None or self.description is None:
            raise ValueError("no head has been trained yet")
        return self.best, self.best_model, self.description

    def by_mix(self) -> dict[str, list[Outcome]]:
        """The outcomes of each mix, in the order of seeds."""
        result: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            result.setdefault(outcome.mix, []).append(outcome)
        return result


def spread_of(outcomes: list[Outcome], split: str, figure: str) -> tuple[float, float]:
    """The mean and spread over seeds of a figure such as `accuracy`."""
    return mean_and_spread([getattr(outcome.scores[split], figure) for outcome in outcomes])


def run(settings: Settings, task: Task, model_path: Path, progress: bool | None = None) -> Results:
    """Train and score a head for every mix and seed, on the biLM at `model_path`."""
    results = Results(task)
    embedder = Embedder(PretrainedBiLm.open(model_path))
    start = time.monotonic()
    stores = {
        name: open_store(
            settings.cache_dir,
            settings.head.mode,
            embedder,
            texts.texts,
            tokenized=settings.data.tokenized,
            max_words=settings.data.max_words,
            name=name,
            progress=progress,
        )
        for name, texts in task.files.items()
    }
    results.seconds["representations"] = time.monotonic() - start
    tables, record = _vectors(settings, stores, results)
    sources = _sources(settings, task, stores, tables)
    bilm = FileRecord(path=str(model_path.resolve()), digest=model_digest(embedder.pretrained))
    del embedder
    descriptions = list(_descriptions(settings, task, stores["train"], bilm, record, tables))
    for description in descriptions:  # a mix that cannot be is told before any is trained
        with torch.device("meta"):
            make_model(description)
    for description in descriptions:
        model = make_seeded(description)
        outcome = _train_one(settings, task, sources, description, model, progress)
        results.add(outcome, model, description)
        logger.info(
            "%s, seed %d: validation %.2f %%, test %.2f %%, %.0f s",
            *(outcome.mix, outcome.seed),
            *(100 * outcome.scores[split].accuracy for split in ("validation", "test")),
            outcome.seconds,
        )
    results.seconds["heads"] = sum(outcome.seconds for outcome in results.outcomes)
    return results


def make_seeded(description: Description) -> TextModel:
    """The model described; its first weights follow from its seed."""
    torch.manual_seed(description.seed)
    return make_model(description)


def _merit(outcome: Outcome) -> tuple[float, float]:
    history = outcome.history
    return outcome.scores["validation"].accuracy, -history.validation_loss[history.best_epoch - 1]


def _vectors(
    settings: Settings, stores: dict[str, Store], results: Results
) -> tuple[dict[str, Table], FileRecord | None]:
    """For each store, a vector for each of its word types."""
    path = settings.head.vectors
    if path is None:
        return {}, None
    record = FileRecord(path=str(Path(path).resolve()), digest=vectors_digest(path))
    vectors = WordVectors.read(path, sorted({w for s in stores.values() for w in s.types}))
    results.known_words = vectors.known_share(stores["train"].types)
    if not vectors.rows:
        raise ConfigError(f"none of the words of the texts has a vector in {path}")
    tables = {
        name: vectors.look_up(store.types, settings.head.unknown) for name, store in stores.items()
    }
    return tables, record


def _sources(
    settings: Settings, task: Task, stores: dict[str, Store], tables: dict[str, Table]
) -> dict[str, Source]:
    by_file = {
        name: make_source(store, settings.head.kind, tables.get(name))
        for name, store in stores.items()
    }
    return {
        split: Subset(by_file[file], indices) for split, (file, indices) in task.indices.items()
    }


def _descriptions(
    settings: Settings,
    task: Task,
    store: Store,
    bilm: FileRecord,
    vectors: FileRecord | None,
    tables: dict[str, Table],
) -> Iterator[Description]:
    """Every head that is to be trained."""
    for kind in settings.mix.kinds:
        for i in range(settings.train.num_seeds):
            yield Description(
                format="bilm-classifier",
                version=1,
                bilm=bilm,
                vectors=vectors,
                vector_dim=tables["train"].shape[1] if tables else 0,
                classes=task.classes,
                mix_kind=kind,
                mix=settings.mix,
                head=settings.head,
                num_layers=store.num_layers,
                dim=store.dim,
                tokenized=settings.data.tokenized,
                max_words=settings.data.max_words,
                seed=settings.train.seed + i,
            )


def _train_one(
    settings: Settings,
    task: Task,
    sources: dict[str, Source],
    description: Description,
    model: TextModel,
    progress: bool | None,
) -> Outcome:
    start = time.monotonic()
    history = fit(
        model,
        sources["train"],
        task.labels["train"],
        sources["validation"],
        task.labels["validation"],
        settings,
        description.seed,
        f"{description.mix_kind}, seed {description.seed}",
        progress,
    )
    scores = {
        split: score(
            task.labels[split],
            predict_probabilities(model, sources[split]).argmax(axis=1),
            task.classes,
        )
        for split in SPLITS
    }
    return Outcome(
        mix=description.mix_kind,
        seed=description.seed,
        history=history,
        scores=scores,
        shares=model.shares(),
        gammas=model.scales(),
        seconds=time.monotonic() - start,
    )
