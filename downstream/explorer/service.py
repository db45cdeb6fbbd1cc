"""What the service computes: the models, the index, and one batcher per operation.

The sentences of waiting requests are read by the biLM in common batches. The answer to a request is
the same, bit for bit, as if it had been computed alone: each word is encoded by a call of its own,
each sentence has its own product with the vocabulary, each text its own call of a trained head, and
the products of the LSTM kernel in C do not depend on the number of rows (with `BILM_KERNELS=torch`
or on an accelerator, an answer may differ by rounding).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.embedding.output import Output
from bilm.embedding.scorer import Scorer
from bilm.embedding.scores import Direction, SentenceScore, Substitute
from bilm.errors import CheckpointError
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.classifier import ExplainedText, TextClassifier
from downstream.explorer.batching import Batcher, BatchLimits
from downstream.explorer.index import OccurrenceIndex
from downstream.explorer.limits import RequestLimits
from downstream.explorer.metrics import Metrics
from downstream.explorer.runs import RunCurves
from downstream.explorer.sentences import SentenceParser, UnavailableError
from downstream.predictors.tagger import TaggedText, Tagger

T = TypeVar("T")
Job = TypeVar("Job")

Layers = npt.NDArray[np.float32]  # (layers, words, dim) of one sentence


@dataclass(frozen=True)
class Loaded:
    """Everything that the service reads before it starts."""

    name: str
    embedder: Embedder
    scorer: Scorer | None
    index: OccurrenceIndex | None = None
    classifier: TextClassifier | None = None
    runs: Sequence[RunCurves] = ()
    tagger: Tagger | None = None

    @property
    def pretrained(self) -> PretrainedBiLm:
        """The model."""
        return self.embedder.pretrained


def scorer_of(pretrained: PretrainedBiLm, embedder: Embedder) -> Scorer | None:
    """Return a scorer with the settings of the embedder, or None for a model without softmax."""
    try:
        return Scorer(pretrained, embedder.limits, embedder.device, embedder.precision)
    except CheckpointError:
        return None


@dataclass(frozen=True)
class PredictionJob:
    """A position of a sentence, and the predictions wanted for it."""

    words: list[str]
    position: int
    count: int
    direction: Direction


@dataclass(frozen=True)
class ClassificationJob:
    """A text to classify, and whether to compute the effect of each word."""

    text: str
    effects: bool


@dataclass(frozen=True)
class Service:
    """The operations of the service; the methods are called from one event loop."""

    loaded: Loaded
    limits: RequestLimits
    batch_limits: BatchLimits
    metrics: Metrics = field(default_factory=Metrics)
    _batchers: dict[str, Batcher[Any, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One thread, because torch uses several cores for one batch.
        executor = ThreadPoolExecutor(1, thread_name_prefix="bilm-compute")
        operations: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
            "embed": self.loaded.embedder.embed,
            "score": self._score,
            "predict": self._predict,
            "classify": self._classify,
            "tag": self._tag,
            "search": lambda searches: [search() for search in searches],
        }
        for name, compute in operations.items():
            self._batchers[name] = Batcher(
                compute, executor, self.batch_limits, self.metrics.count_batch
            )

    def queued_words(self) -> int:
        """Return the number of words that wait."""
        return sum(batcher.queued_words for batcher in self._batchers.values())

    async def layers(self, sentences: Sequence[list[str]]) -> list[Layers]:
        """Return all layers of each sentence."""
        return await self._batchers["embed"].submit(sentences, _num_words(sentences))

    async def scores(self, sentences: Sequence[list[str]]) -> list[SentenceScore]:
        """Return the surprisals of each sentence."""
        self._require_scorer()
        return await self._batchers["score"].submit(sentences, _num_words(sentences))

    async def predictions(self, jobs: Sequence[PredictionJob]) -> list[list[Substitute]]:
        """Return the most likely words of each job."""
        self._require_scorer()
        num_words = _num_words([job.words for job in jobs])
        return await self._batchers["predict"].submit(jobs, num_words)

    async def parse(self, sentences: Sequence[str | list[str]]) -> list[list[str]]:
        """Return the words of sentences, within the limits."""
        parser = SentenceParser(self.loaded.pretrained.tokenizer, self.limits)
        is_fast = not any(isinstance(sentence, str) for sentence in sentences)
        return await self.in_thread(lambda: parser.parse(sentences), is_fast)

    async def probabilities(self, texts: Sequence[str], effects: bool) -> list[ExplainedText]:
        """Return the probabilities of the classes, and how much the words matter, of each text."""
        self.classifier()
        num_words = SentenceParser(None, self.limits).check_texts(texts)
        jobs = [ClassificationJob(text, effects) for text in texts]
        return await self._batchers["classify"].submit(jobs, num_words)

    async def tags(self, texts: Sequence[str]) -> list[TaggedText]:
        """Return the tagged words and the spans of each text."""
        self.tagger()
        num_words = SentenceParser(None, self.limits).check_texts(texts)
        return await self._batchers["tag"].submit(texts, num_words)

    async def search(self, search: Callable[[], Any]) -> Any:
        """Run a search in the index; it waits for its turn like other computations."""
        (result,) = await self._batchers["search"].submit([search], 1)
        return result

    async def in_thread(self, function: Callable[[], T], is_fast: bool = False) -> T:
        """Run a function that tokenizes, reads a file or formats an answer.

        It runs beside the computations, and the event loop can answer other requests. A function
        that takes less than a millisecond is called at once, because a thread takes as long.
        """
        if is_fast:
            return function()
        return await asyncio.get_running_loop().run_in_executor(None, function)

    def open(self) -> None:
        """Accept requests."""
        for batcher in self._batchers.values():
            batcher.open()

    async def close(self) -> None:
        """Finish what is in the queues."""
        for batcher in self._batchers.values():
            await batcher.close()

    def index(self) -> OccurrenceIndex:
        """Return the index, or raise UnavailableError."""
        if self.loaded.index is None:
            raise UnavailableError(
                "this service has no index; start it with --text FILE to search the words of a text"
            )
        return self.loaded.index

    def classifier(self) -> TextClassifier:
        """Return the classifier, or raise UnavailableError."""
        if self.loaded.classifier is None:
            raise UnavailableError(
                "this service has no classifier; start it with --classifier DIR, a report of "
                "`bilm tasks classify`"
            )
        return self.loaded.classifier

    def tagger(self) -> Tagger:
        """Return the tagger, or raise UnavailableError."""
        if self.loaded.tagger is None:
            raise UnavailableError(
                "this service has no tagger; start it with --tagger DIR, a report of "
                "`bilm tasks tag`"
            )
        return self.loaded.tagger

    def _require_scorer(self) -> Scorer:
        if self.loaded.scorer is None:
            raise UnavailableError(
                "this model has no softmax, so it cannot predict words; use a run, or a model "
                "directory that `bilm export` has written"
            )
        return self.loaded.scorer

    def _score(self, sentences: Sequence[list[str]]) -> list[SentenceScore]:
        return self._require_scorer().score(sentences, combined=True)

    def _predict(self, jobs: Sequence[PredictionJob]) -> list[list[Substitute]]:
        scorer = self._require_scorer()

        def predict(count: int, direction: Direction, own: list[PredictionJob]) -> Any:
            words, positions = [job.words for job in own], [job.position for job in own]
            return scorer.substitutes(words, positions, count, direction)

        return _in_groups(jobs, lambda job: (job.count, job.direction), predict)

    def _classify(self, jobs: Sequence[ClassificationJob]) -> list[ExplainedText]:
        classifier = self.classifier()

        def explain(effects: bool, own: list[ClassificationJob]) -> Any:
            return classifier.explain([job.text for job in own], effects)

        return _in_groups(jobs, lambda job: (job.effects,), explain)

    def _tag(self, texts: Sequence[str]) -> list[TaggedText]:
        return self.tagger().predict(texts)


def _in_groups(
    jobs: Sequence[Job], key: Callable[[Job], tuple[Any, ...]], compute: Callable[..., Sequence[T]]
) -> list[T]:
    """Compute the jobs with equal keys together; `compute` receives the key and the jobs."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, job in enumerate(jobs):
        groups.setdefault(key(job), []).append(i)
    results: dict[int, T] = {}
    for own, places in groups.items():
        found = compute(*own, [jobs[i] for i in places])
        results.update(zip(places, found, strict=True))
    return [results[i] for i in range(len(jobs))]


def formed(layers: Layers, output: Output) -> npt.NDArray[Any]:
    """Return the layers of a sentence in the form of `output`; the values do not depend on others.

    Means are accumulated in float64, as in the embedder.
    """
    weights = layer_weights(output.layers, len(layers))
    chosen = layers if weights is None else mixed(layers, weights)[None]
    parts: list[npt.NDArray[Any]] = [chosen]
    if output.pool != "none":
        parts = [_pooled(chosen, name) for name in output.pool.split("_")]
    joined: npt.NDArray[Any] = np.concatenate(parts, axis=-1).astype(output.dtype)
    result: npt.NDArray[Any] = joined if weights is None else joined[0]
    return result


def _pooled(chosen: Layers, name: str) -> npt.NDArray[Any]:
    """Return the mean or the maximum over the words (layers, words, dim): (layers, dim)."""
    if chosen.shape[1] == 0:
        return np.zeros((chosen.shape[0], chosen.shape[2]), np.float32)
    pooled: npt.NDArray[Any] = chosen.max(axis=1)
    if name == "mean":
        pooled = chosen.mean(axis=1, dtype=np.float64)
    return pooled


def layer_weights(layers: str | Sequence[float], num_layers: int) -> list[float] | None:
    """Return the weight of each layer, or None for all layers."""
    if layers == "all":
        return None
    if layers == "top":
        return [0.0] * (num_layers - 1) + [1.0]
    if isinstance(layers, str):
        return [1 / num_layers] * num_layers
    return [float(weight) for weight in layers]


def mixed(layers: Layers, weights: Sequence[float]) -> Layers:
    """Return the sum of the layers (layers, words, dim) with these weights: (words, dim)."""
    total = np.zeros(layers.shape[1:], np.float32)
    for layer, weight in zip(layers, weights, strict=True):
        if weight != 0:
            total += np.float32(weight) * layer
    return total


def _num_words(sentences: Sequence[Sequence[str]]) -> int:
    """Return the number of words with boundary tokens, which are computed, too."""
    return sum(len(sentence) + 2 for sentence in sentences)
