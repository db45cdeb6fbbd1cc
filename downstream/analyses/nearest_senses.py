"""Word senses by the nearest mean vector, in each layer of a biLM and in their mean.

The mean vector of a sense is the mean over its training instances; the vector of an instance of
several words is their mean. A test instance gets the sense of its lemma and part of speech whose
mean vector has the largest cosine similarity to its own.

Memory: 8 x senses x layers x dim bytes for the mean vectors (0.3 GB for 33,000 senses at 3 x 384).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ConfigError
from bilm.model.devices import AUTO
from bilm.model.precision import Precision
from downstream.analyses.sense_scores import Answers
from downstream.reports.pages import layer_name
from downstream.texts.senses import (
    Lemma,
    SenseFile,
    SenseInstance,
    read_first_senses,
    read_senses,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from downstream.features.store import Store

    Doubles = npt.NDArray[np.float64]

logger = logging.getLogger(__name__)

MOST_FREQUENT = "most frequent sense"
MEAN_OF_LAYERS = "mean of the layers"
ALL_SETS = "all"

# Differences of cosines below this are rounding errors: words without context have equal vectors.
_EQUAL = 1e-6


@dataclass(frozen=True)
class SenseOptions:
    """The flags of the command."""

    model: Path
    train: Path
    test: Sequence[Path]
    output: Path
    overwrite: bool = False
    cache: Path | None = None
    sense_index: Path | None = None
    progress: bool | None = None
    device: str = AUTO
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        names = [set_name(path) for path in self.test]
        for name in names:
            if names.count(name) > 1 or name == ALL_SETS:
                raise ConfigError(
                    f"--test has the name {name!r} more than once, or it is {ALL_SETS!r}, the name "
                    "of all sets together; rename the file"
                )

    @property
    def cache_dir(self) -> Path:
        """The directory of the cached representations."""
        return self.cache or self.output.parent / "representations"


def set_name(path: Path) -> str:
    """Return the name of a test set: that of its file, without extensions."""
    return path.name.partition(".")[0]


class Senses:
    """The senses of each lemma in training, the most frequent first.

    Senses that are equally frequent are in the order of their first instances.
    """

    def __init__(self, instances: Sequence[SenseInstance]) -> None:
        counts: dict[Lemma, Counter[str]] = {}
        for instance in instances:
            counts.setdefault(instance.lemma, Counter()).update(dict.fromkeys(instance.keys, 1))
        self.by_lemma = {
            lemma: tuple(key for key, _ in count.most_common()) for lemma, count in counts.items()
        }
        starts, total = {}, 0
        for lemma, keys in self.by_lemma.items():
            starts[lemma] = total
            total += len(keys)
        self._starts = starts
        self.num_senses = total

    def rows(self, lemma: Lemma) -> slice:
        """Return the rows of the senses of a lemma in the array of all senses."""
        start = self._starts[lemma]
        return slice(start, start + len(self.by_lemma[lemma]))

    def row(self, lemma: Lemma, key: str) -> int:
        """Return the row of a sense."""
        return self._starts[lemma] + self.by_lemma[lemma].index(key)


@dataclass(frozen=True)
class SenseResult:
    """The answers for each test set, and the numbers of instances."""

    options: SenseOptions
    num_instances: int  # in training
    num_lemmas: int
    num_senses: int
    by_set: Mapping[str, Answers]
    tests: Mapping[str, SenseFile]

    def all_sets(self) -> Answers:
        """Return the answers for all test sets together."""
        return Answers.join(list(self.by_set.values()))


def nearest_senses(options: SenseOptions) -> SenseResult:
    """Compute the mean vectors of the senses, and the answers for all test sets."""
    first = {} if options.sense_index is None else read_first_senses(options.sense_index)
    train = read_senses(options.train)
    tests = {set_name(path): read_senses(path) for path in options.test}
    stores = _open_stores(options, {"train": train, **{f"test: {n}": f for n, f in tests.items()}})
    senses = Senses(train.instances)
    means = mean_vectors(senses, train, stores["train"])
    by_set = {}
    for name, file in tests.items():
        by_set[name] = answer(senses, means, first, file, stores[f"test: {name}"])
        logger.info("%s: %s", name, by_set[name].summary())
    num_lemmas = len(senses.by_lemma)
    return SenseResult(options, len(train.instances), num_lemmas, senses.num_senses, by_set, tests)


def _open_stores(options: SenseOptions, files: Mapping[str, SenseFile]) -> dict[str, Store]:
    from bilm.embedding.embedder import Embedder
    from bilm.pretrained.model_directory import PretrainedBiLm
    from downstream.features.store import open_stores
    from downstream.features.texts_to_layers import UNLIMITED_WORDS, TextReading

    pretrained = PretrainedBiLm.open(options.model)
    embedder = Embedder(pretrained, device=options.device, precision=options.precision)
    texts = {name: file.sentences for name, file in files.items()}
    reading = TextReading(tokenized=True, max_words=UNLIMITED_WORDS)
    return open_stores(options.cache_dir, "words", embedder, texts, reading, options.progress)


def instance_vectors(file: SenseFile, store: Store) -> Iterator[tuple[SenseInstance, Doubles]]:
    """Yield each instance with its layers (layers, dim): the mean over its words."""
    import numpy as np

    sentence, layers = -1, None
    for instance in file.instances:
        if layers is None or instance.sentence != sentence:
            sentence = instance.sentence
            layers = store.layers_of(store.words_of(sentence)).astype(np.float64)
        yield instance, layers[instance.start : instance.end].mean(axis=0)


def mean_vectors(senses: Senses, file: SenseFile, store: Store) -> Doubles:
    """Return the mean vector of each sense in each layer (senses, layers, dim)."""
    import numpy as np

    sums = np.zeros((senses.num_senses, store.num_layers, store.dim))
    counts = np.zeros(senses.num_senses)
    for instance, vector in instance_vectors(file, store):
        for key in dict.fromkeys(instance.keys):
            row = senses.row(instance.lemma, key)
            sums[row] += vector
            counts[row] += 1
    sums /= counts[:, None, None]
    return sums


def answer(
    senses: Senses, means: Doubles, first: Mapping[Lemma, str], file: SenseFile, store: Store
) -> Answers:
    """Return the answers of each layer, of their mean, and of the most frequent sense.

    A lemma that is not in training gets its sense in `first`, or None.
    """
    layers = [layer_name(layer) for layer in range(store.num_layers)]
    names = (MOST_FREQUENT, *layers, MEAN_OF_LAYERS)
    keys: dict[str, list[str | None]] = {name: [] for name in names}
    backed_off, known = [], []
    for instance, vector in instance_vectors(file, store):
        candidates = senses.by_lemma.get(instance.lemma, ())
        backed_off.append(not candidates)
        known.append(not set(candidates).isdisjoint(instance.keys))
        if candidates:
            nearest = nearest_rows(vector, means[senses.rows(instance.lemma)])
            chosen: list[str | None] = [candidates[row] for row in (0, *nearest)]
        else:
            chosen = [first.get(instance.lemma)] * len(names)
        for name, key in zip(names, chosen, strict=True):
            keys[name].append(key)
    return Answers(file.instances, keys, backed_off, known)


def nearest_rows(vector: Doubles, means: Doubles) -> list[int]:
    """Return the row of the nearest mean vector in each layer, and in the mean of the layers.

    `vector` is (layers, dim) and `means` is (senses, layers, dim). Of senses at the same distance,
    the first one is returned, which is the most frequent one.
    """
    import numpy as np

    query = np.concatenate([vector, vector.mean(axis=0, keepdims=True)])  # (layers + 1, dim)
    others = np.concatenate([means, means.mean(axis=1, keepdims=True)], axis=1)
    products = np.einsum("ld,sld->ls", query, others)
    norms = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(others, axis=2).T
    cosines = products / np.maximum(norms, 1e-12)  # (layers + 1, senses)
    is_nearest = cosines >= cosines.max(axis=1, keepdims=True) - _EQUAL
    rows: list[int] = is_nearest.argmax(axis=1).tolist()
    return rows
