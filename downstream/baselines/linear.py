"""Six baselines: the most frequent class, and five linear classifiers on features of the texts.

Each linear classifier is fitted on the training split, and its regularization strength is chosen on
the validation split. Vocabularies and vectors are made from the training split alone. Libraries:
scikit-learn, gensim.

docs/baselines.md has the cost on 64,539 news texts of 45 words, on one core. Memory grows with the
number of texts: about 30 kB per text for the character n-grams, far less for the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bilm.errors import ConfigError
from downstream.baselines.baseline import TITLES, Baseline
from downstream.baselines.cooccurrence import svd_vectors
from downstream.baselines.mean_vectors import mean_vectors, skip_gram, words_of
from downstream.features.word_vectors import WordVectors
from downstream.tasks.classification import Task
from downstream.tasks.scores import score

Ids = npt.NDArray[np.int64]

Features = dict[str, Any]  # by split: a matrix, sparse or dense, with one row per text

_MIN_TEXTS_TO_DROP_RARE_WORDS = 1000

VECTOR_DIM = 100

SVD_DIM = 300

WINDOW = 5

SKIP_GRAM_EPOCHS = 5


@dataclass(frozen=True)
class Texts:
    """The texts and label ids of each split, and the names of the classes."""

    texts: Mapping[str, Sequence[str]]
    labels: Mapping[str, Ids]
    classes: tuple[str, ...]

    def words(self) -> dict[str, list[list[str]]]:
        """Return the words of every text, by split."""
        return {split: [words_of(text) for text in texts] for split, texts in self.texts.items()}

    @property
    def min_count(self) -> int:
        """The number of training texts that a word must occur in to be used as a feature."""
        return 2 if len(self.texts["train"]) >= _MIN_TEXTS_TO_DROP_RARE_WORDS else 1


def texts_of(task: Task) -> Texts:
    """Return the texts of each split of a task."""
    texts = {name: task.texts(name) for name in task.splits}
    labels = {name: split.labels for name, split in task.splits.items()}
    return Texts(texts, labels, task.classes)


def tf_idf(data: Texts, seed: int) -> Baseline:
    """Fit logistic regression on TF-IDF weighted words and word pairs."""
    vectorizer = TfidfVectorizer(
        tokenizer=words_of,
        token_pattern=None,
        lowercase=False,
        ngram_range=(1, 2),
        min_df=data.min_count,
        sublinear_tf=True,
    )

    def classifier(strength: float) -> Any:
        # One-vs-rest is several times faster than multinomial regression, and no less accurate.
        return OneVsRestClassifier(
            LogisticRegression(C=strength, solver="liblinear", dual=True, random_state=seed)
        )

    return _fit("tfidf", data, lambda: _vectorized(vectorizer, data), classifier, (4.0, 16.0))


def ngram_svm(data: Texts, seed: int) -> Baseline:
    """Fit a linear SVM on TF-IDF weighted words, word pairs and n-grams of 2 to 5 characters."""
    options = {"min_df": data.min_count, "sublinear_tf": True, "dtype": np.float32}
    vectorizer = make_union(
        TfidfVectorizer(ngram_range=(1, 2), tokenizer=words_of, token_pattern=None, **options),
        TfidfVectorizer(ngram_range=(2, 5), analyzer="char_wb", **options),
    )

    def classifier(strength: float) -> Any:
        return LinearSVC(C=strength, random_state=seed)

    return _fit("svm", data, lambda: _vectorized(vectorizer, data), classifier, (0.3, 1.0))


def glove_mean(data: Texts, path: str) -> Baseline:
    """Fit logistic regression on the mean of the word vectors in the file `path`."""

    def features() -> Features:
        words = data.words()
        distinct = sorted({word for texts in words.values() for text in texts for word in text})
        vectors = WordVectors.read(path, distinct)
        if not vectors.rows:
            raise ConfigError(
                f"no word of the texts has a vector in {path}; pass another --vectors"
            )
        return _means(vectors, words)

    return _fit("glove", data, features, _dense_logistic, _DENSE_GRID)


def cooccurrence_svd(data: Texts, seed: int) -> Baseline:
    """Fit logistic regression on the mean of the training texts' co-occurrence vectors."""

    def features() -> Features:
        words = data.words()
        vectors = svd_vectors(words["train"], dim=SVD_DIM, window=WINDOW, seed=seed)
        return _means(vectors, words)

    return _fit("svd", data, features, _dense_logistic, _DENSE_GRID)


def skip_gram_mean(data: Texts, seed: int) -> Baseline:
    """Fit logistic regression on the mean of skip-gram vectors of the training texts."""

    def features() -> Features:
        words = data.words()
        vectors = skip_gram(
            words["train"],
            dim=VECTOR_DIM,
            window=WINDOW,
            epochs=SKIP_GRAM_EPOCHS,
            min_count=data.min_count,
            seed=seed,
        )
        return _means(vectors, words)

    return _fit("skipgram", data, features, _dense_logistic, _DENSE_GRID)


_DENSE_GRID = (0.1, 1.0, 10.0)


def majority(data: Texts) -> Baseline:
    """Always predict the most frequent class of the training texts."""
    start = time.process_time()
    most_frequent = int(np.bincount(data.labels["train"], minlength=len(data.classes)).argmax())
    predicted = {split: np.full(len(ids), most_frequent) for split, ids in data.labels.items()}
    return _baseline("majority", data, {"class": data.classes[most_frequent]}, predicted, start)


def _fit(
    name: str,
    data: Texts,
    features: Callable[[], Features],
    classifier: Callable[[float], Any],
    strengths: Sequence[float],
) -> Baseline:
    """Fit a classifier per strength; keep the best on the validation split, the first of ties."""
    start = time.process_time()
    matrices = features()
    best_accuracy, chosen = -1.0, 0.0
    best: dict[str, Ids] = {}
    for strength in strengths:
        model = classifier(strength).fit(matrices["train"], data.labels["train"])
        predicted = {split: model.predict(matrix) for split, matrix in matrices.items()}
        accuracy = float(np.mean(predicted["validation"] == data.labels["validation"]))
        if accuracy > best_accuracy:
            best_accuracy, chosen, best = accuracy, strength, predicted
    return _baseline(name, data, {"C": chosen}, best, start)


def _baseline(
    name: str, data: Texts, chosen: dict[str, Any], predicted: dict[str, Ids], start: float
) -> Baseline:
    scores = {
        split: score(labels, predicted[split], data.classes)
        for split, labels in data.labels.items()
    }
    return Baseline(name, TITLES[name], chosen, scores, time.process_time() - start)


def _vectorized(vectorizer: Any, data: Texts) -> Features:
    result = {"train": vectorizer.fit_transform(data.texts["train"])}
    for split, texts in data.texts.items():
        if split != "train":
            result[split] = vectorizer.transform(texts)
    return result


def _means(vectors: WordVectors, words: dict[str, list[list[str]]]) -> Features:
    return {split: mean_vectors(vectors, texts) for split, texts in words.items()}


def _dense_logistic(strength: float) -> Any:
    """Return multinomial logistic regression on standardized features; it uses no seed."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
