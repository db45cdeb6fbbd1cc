"""`BiLmClassifier` and `python -m downstream.classify` have the same defaults and results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from downstream.classifier import TextClassifier
from downstream.classify import main
from downstream.estimators import BiLmClassifier, BiLmRegressor, BiLmVectorizer
from downstream.settings.sections import DataSettings, HeadTraining, Settings
from tests.downstream.order_task import order_texts, tiny_bilm, write_csv


def resolved(settings: HeadTraining) -> HeadTraining:
    """Return the settings with the values of the defaults that depend on the head."""
    head = settings.head.model_copy(update={"hidden_dim": settings.head.hidden})
    chosen = {"epochs": settings.epochs, "learning_rate": settings.learning_rate}
    train = settings.train.model_copy(update=chosen)
    return settings.model_copy(update={"head": head, "train": train})


def test_defaults_are_those_of_classify() -> None:
    settings = Settings(model="m", output="o", data=DataSettings(train="a.csv", test="b.csv"))
    classifier = BiLmClassifier("m")
    own = classifier._settings(classifier._seed())
    assert resolved(own) == resolved(settings.head_training)
    for num_texts in (10, 1000, 100_000):
        assert own.batch_size(num_texts) == settings.head_training.batch_size(num_texts)
    parameters = classifier.get_params()
    assert parameters["validation_share"] == settings.data.validation_share
    assert parameters["max_words"] == settings.data.max_words
    assert parameters["long_texts"] == settings.data.long_texts
    assert parameters["random_state"] == settings.train.seed
    assert BiLmVectorizer("m").max_words == settings.data.max_words
    assert BiLmVectorizer("m").long_texts == settings.data.long_texts
    assert BiLmRegressor("m").get_params() == parameters


@pytest.mark.parametrize("seed", [0, 7])
def test_same_seed_gives_the_head_of_classify(tmp_path: Path, seed: int) -> None:
    tiny_bilm().save_pretrained(tmp_path / "model")
    train, test = order_texts(300, 1), order_texts(60, 2)
    command = [f"--model={tmp_path / 'model'}", f"--seed={seed}"]
    command += [f"--train={write_csv(tmp_path / 'train.csv', train)}"]
    command += [f"--test={write_csv(tmp_path / 'test.csv', test)}"]
    main([*command, f"--output={tmp_path / 'report'}"])
    expected = TextClassifier.from_pretrained(tmp_path / "report")
    labels, texts = zip(*train, strict=True)
    classifier = BiLmClassifier(tmp_path / "model", random_state=seed).fit(texts, labels)
    new = [text for _, text in test]
    assert tuple(classifier.classes_) == expected.classes
    np.testing.assert_allclose(
        classifier.predict_proba(new), expected.predict_proba(new), atol=1e-4
    )
