"""What a biLM has to beat: six ways to tell texts apart that are cheaper or know less.

Each makes features of the texts, fits a linear classifier on the training split, and lets the
validation split choose how strongly it is regularised. What is made of text (vocabularies, vectors)
is made of the training split alone. Libraries: scikit-learn, gensim.

Costs on 64,539 news texts of 45 words, one core: see docs/baselines.md. Memory grows with the text:
about 30 kB a text for the n-grams of characters, far less for the others.
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
from downstream.baselines.cooccurrence import svd_vectors
from downstream.baselines.mean_vectors import mean_vectors, skip_gram, words_of
from downstream.features.word_vectors import WordVectors
from downstream.tasks.scores import Scores, score

Ids = npt.NDArray[np.int64]

Features = dict[str, Any]  # by split: a matrix, sparse or not, one row a text

_FEW_TEXTS = 1000  # below that, words that occur once count too

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
        """The words of every text."""
        return {split: [words_of(text) for text in texts] for split, texts in self.texts.items()}

    @property
    def min_count(self) -> int:
        """How often a word must occur to count."""
        return 2 if len(self.texts["train"]) >= _FEW_TEXTS else 1


@dataclass(frozen=True)
class Baseline:
    """How one of them scored, what the validation split chose, and what it took."""

    name: str
    title: str
    chosen: dict[str, Any]
    scores: dict[str, Scores]
    cpu_seconds: float


def tf_idf(data: Texts, seed: int) -> Baseline:
    """Weighted words and pairs of words, logistic regression."""
    vectorizer = TfidfVectorizer(
        tokenizer=words_of,
        token_pattern=None,
        lowercase=False,
        ngram_range=(1, 2),
        min_df=data.min_count,
        sublinear_tf=True,
    )

    def classifier(strength: float) -> Any:
        # One class against the rest: several times faster than all at once, and no worse.
        return OneVsRestClassifier(
            LogisticRegression(C=strength, solver="liblinear", dual=True, random_state=seed)
        )

    return _fit("tfidf", data, lambda: _vectorized(vectorizer, data), classifier, (4.0, 16.0))


def ngram_svm(data: Texts, seed: int) -> Baseline:
    """Weighted words, pairs of words and runs of 2 to 5 characters, linear SVM."""
    options = {"min_df": data.min_count, "sublinear_tf": True, "dtype": np.float32}
    vectorizer = make_union(
        TfidfVectorizer(ngram_range=(1, 2), tokenizer=words_of, token_pattern=None, **options),
        TfidfVectorizer(ngram_range=(2, 5), analyzer="char_wb", **options),
    )

    def classifier(strength: float) -> Any:
        return LinearSVC(C=strength, random_state=seed)

    return _fit("svm", data, lambda: _vectorized(vectorizer, data), classifier, (0.3, 1.0))


def glove_mean(data: Texts, path: str) -> Baseline:
    """The mean of ready-made word vectors, logistic regression."""

    def features() -> Features:
        words = data.words()
        distinct = sorted({word for texts in words.values() for text in texts for word in text})
        vectors = WordVectors.read(path, distinct)
        if not vectors.rows:
            raise ConfigError(f"none of the words of the texts has a vector in {path}")
        return _means(vectors, words)

    return _fit("glove", data, features, _dense_logistic, _DENSE_GRID)


def cooccurrence_svd(data: Texts, seed: int) -> Baseline:
    """The mean of vectors from the SVD of the training text's co-occurrences."""

    def features() -> Features:
        words = data.words()
        vectors = svd_vectors(words["train"], dim=SVD_DIM, window=WINDOW, seed=seed)
        return _means(vectors, words)

    return _fit("svd", data, features, _dense_logistic, _DENSE_GRID)


def skip_gram_mean(data: Texts, seed: int) -> Baseline:
    """The mean of skip-gram vectors trained on the training text."""

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


TITLES = {
    "majority": "the most frequent class",
    "tfidf": "TF-IDF of words and pairs, logistic regression",
    "svm": "words and characters n-grams, linear SVM",
    "glove": "mean of given word vectors, logistic regression",
    "svd": "mean of SVD vectors of co-occurrences, logistic regression",
    "skipgram": "mean of skip-gram vectors, logistic regression",
    "untrained": "the biLM with fresh weights, the same head",
}

_DENSE_GRID = (0.1, 1.0, 10.0)


def majority(data: Texts) -> Baseline:
    """Always the most frequent class of the training texts: the floor."""
    start = time.process_time()
    most = int(np.bincount(data.labels["train"], minlength=len(data.classes)).argmax())
    guesses = {split: np.full(len(ids), most) for split, ids in data.labels.items()}
    return _baseline("majority", data, {"class": data.classes[most]}, guesses, start)


def _fit(
    name: str,
    data: Texts,
    features: Callable[[], Features],
    classifier: Callable[[float], Any],
    strengths: Sequence[float],
) -> Baseline:
    """Fit a classifier for each strength; the best on the validation split, the first of equals."""
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
    """All classes at once; no chance in it."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
