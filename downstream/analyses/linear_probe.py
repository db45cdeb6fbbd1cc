"""Linear probes for the tags of words in context, one per layer.

A probe is logistic regression from the vector of a word in its sentence to its tag in a CoNLL-U
file. The words are taken from the file; the model's tokenizer is not used.

Memory: 4 x max-words x layers x dim bytes for the training words (0.15 GB for 50,000 at 3 x 256).
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ConfigError, CorpusError
from bilm.model.devices import AUTO
from bilm.model.precision import Precision
from downstream.reports.pages import layer_name
from downstream.tasks.scores import Scores, score
from downstream.texts.conllu import TaggedSentence, read_conllu

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bilm.embedding.embedder import Embedder

    Vectors = npt.NDArray[np.float32]  # (layers, words, dim)
    Ids = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

BY_WORD = "most frequent tag of the word"


@dataclass(frozen=True)
class ProbeOptions:
    """The flags of the command."""

    model: Path
    train: Path
    test: Path
    output: Path
    overwrite: bool = False
    tags: str = "upos"
    max_words: int = 50_000
    seed: int = 0
    strength: float = 1.0
    progress: bool | None = None
    device: str = AUTO
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}; it must not be negative")
        for flag, value in (("--max-words", self.max_words), ("--strength", self.strength)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{flag} is {value}; it must be above 0 and finite")


@dataclass(frozen=True)
class ProbeResult:
    """The scores of the probe of each layer, and of predicting each word's most frequent tag."""

    options: ProbeOptions
    tags: Sequence[str]
    num_words: Mapping[str, int]  # keys: "train" and "test"
    by_word: Scores
    by_layer: Sequence[Scores]

    def scores(self) -> dict[str, Scores]:
        """Return all scores by name, as in results.json."""
        layers = {layer_name(i): scores for i, scores in enumerate(self.by_layer)}
        return {BY_WORD: self.by_word, **layers}


def probe(options: ProbeOptions) -> ProbeResult:
    """Fit and score one probe per layer, and score the most frequent tag of each word."""
    import numpy as np

    from bilm.embedding.embedder import Embedder
    from bilm.pretrained.model_directory import PretrainedBiLm

    train, test = (
        read_words(path, options.tags, options.max_words, options.seed)
        for path in (options.train, options.test)
    )
    tags = tuple(sorted({tag for part in (train, test) for s in part for tag in s.tags}))
    ids = {tag: i for i, tag in enumerate(tags)}
    truth = np.array([ids[tag] for sentence in test for tag in sentence.tags])
    labels = np.array([ids[tag] for sentence in train for tag in sentence.tags])
    if len(set(labels.tolist())) < 2:
        raise CorpusError(
            f"{options.train} has only one value of {options.tags}, {train[0].tags[0]!r}; a probe "
            "needs at least two. Choose another column with --tags"
        )
    frequent = np.array([ids[tag] for tag in most_frequent_tags(train, test)])
    pretrained = PretrainedBiLm.open(options.model)
    embedder = Embedder(pretrained, device=options.device, precision=options.precision)
    vectors, test_vectors = (
        word_vectors(embedder, part, options.progress) for part in (train, test)
    )
    by_layer = []
    for layer in range(embedder.num_layers):
        predicted = _fit(vectors[layer], labels, test_vectors[layer], options.strength)
        by_layer.append(score(truth, predicted, tags))
        logger.info("%s: %.2f %%", layer_name(layer), 100 * by_layer[-1].accuracy)
    num_words = {"train": len(labels), "test": len(truth)}
    return ProbeResult(options, tags, num_words, score(truth, frequent, tags), by_layer)


def read_words(path: Path, column: str, max_words: int, seed: int) -> list[TaggedSentence]:
    """Draw whole sentences of a file, with at most `max_words` words in total.

    Treebanks are ordered by source, so the first sentences would all come from one source.
    """
    import numpy as np

    every = list(read_conllu(path, column))
    if not every:
        raise CorpusError(f"{path} has no sentences; expected a CoNLL-U file")
    drawn: list[int] = []
    count = 0
    for i in np.random.default_rng(seed).permutation(len(every)).tolist():
        count += len(every[i].words)
        if drawn and count > max_words:
            break
        drawn.append(i)
    return [every[i] for i in sorted(drawn)]


def most_frequent_tags(
    train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]
) -> Iterator[str]:
    """Yield, for each word of `test`, its most frequent tag in `train`.

    A word that is not in `train` gets the most frequent tag of all words.
    """
    by_word: dict[str, Counter[str]] = {}
    every: Counter[str] = Counter()
    for sentence in train:
        every.update(sentence.tags)
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            by_word.setdefault(word.lower(), Counter())[tag] += 1
    for sentence in test:
        for word in sentence.words:
            yield by_word.get(word.lower(), every).most_common(1)[0][0]


def word_vectors(
    embedder: Embedder, sentences: Sequence[TaggedSentence], progress: bool | None
) -> Vectors:
    """Return the layers of all words, in the order of the sentences (layers, words, dim)."""
    import numpy as np

    from downstream.settings.progress import Progress

    words = [list(sentence.words) for sentence in sentences]
    count = sum(map(len, words))
    result = np.empty((embedder.num_layers, count, embedder.dim), dtype=np.float32)
    done = 0
    with Progress("biLM", progress).bar("words", total=count) as bar:
        for layers in embedder.stream(words):
            num_words = layers.shape[1]
            result[:, done : done + num_words] = layers
            done += num_words
            bar.update(num_words)
    return result


def _fit(train: Vectors, labels: Ids, test: Vectors, strength: float) -> Ids:
    """Fit a linear probe on the vectors `train`, and return the tags it predicts for `test`."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    # scikit-learn's loss is a sum over words, so C is scaled by their number. Few iterations are
    # enough: the accuracy of the probe converges long before its loss.
    model = LogisticRegression(C=strength * 10_000 / len(labels), max_iter=150, tol=1e-3)
    model.fit(scaler.transform(train), labels)
    predicted: Ids = model.predict(scaler.transform(test))
    return predicted
