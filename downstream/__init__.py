"""Tasks on frozen biLM representations: classes, pairs, tags, answers, coreference, and analyses.

Public names are imported on first use, so that commands print `--help` without importing torch.
Before that, waiting threads are set to sleep soon, as in `bilm`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from downstream.classifier import TextClassifier as TextClassifier
    from downstream.estimators import BiLmClassifier as BiLmClassifier
    from downstream.estimators import BiLmRegressor as BiLmRegressor
    from downstream.estimators import BiLmVectorizer as BiLmVectorizer
    from downstream.predictors.answerer import QuestionAnswerer as QuestionAnswerer
    from downstream.predictors.coreference import CoreferenceResolver as CoreferenceResolver
    from downstream.predictors.pair_estimator import BiLmPairClassifier as BiLmPairClassifier
    from downstream.predictors.pairs import PairClassifier as PairClassifier
    from downstream.predictors.tagger import RoleLabeler as RoleLabeler
    from downstream.predictors.tagger import Tagger as Tagger
    from downstream.predictors.texts import TextLabeler as TextLabeler
    from downstream.predictors.texts import TextRegressor as TextRegressor
    from downstream.texts.labelled import LabelledTexts as LabelledTexts
    from downstream.texts.labelled import read_labelled as read_labelled

_MODULES = {
    "BiLmClassifier": "downstream.estimators",
    "BiLmPairClassifier": "downstream.predictors.pair_estimator",
    "BiLmRegressor": "downstream.estimators",
    "BiLmVectorizer": "downstream.estimators",
    "CoreferenceResolver": "downstream.predictors.coreference",
    "LabelledTexts": "downstream.texts.labelled",
    "PairClassifier": "downstream.predictors.pairs",
    "QuestionAnswerer": "downstream.predictors.answerer",
    "RoleLabeler": "downstream.predictors.tagger",
    "Tagger": "downstream.predictors.tagger",
    "TextClassifier": "downstream.classifier",
    "TextLabeler": "downstream.predictors.texts",
    "TextRegressor": "downstream.predictors.texts",
    "read_labelled": "downstream.texts.labelled",
}

__all__ = [
    "BiLmClassifier",
    "BiLmPairClassifier",
    "BiLmRegressor",
    "BiLmVectorizer",
    "CoreferenceResolver",
    "LabelledTexts",
    "PairClassifier",
    "QuestionAnswerer",
    "RoleLabeler",
    "Tagger",
    "TextClassifier",
    "TextLabeler",
    "TextRegressor",
    "read_labelled",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'downstream' has no attribute {name!r}")
    from bilm.distributed.process import limit_spinning

    limit_spinning()
    return getattr(import_module(_MODULES[name]), name)
