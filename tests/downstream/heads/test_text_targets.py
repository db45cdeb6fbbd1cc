from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch.nn import functional as F

from downstream.features.batches import FeatureShape
from downstream.heads.saved_head import make_text_model
from downstream.heads.text_targets import (
    LabelSetModel,
    NumberModel,
    Outputs,
    TargetRecord,
    best_threshold,
    micro_f1,
)
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadSettings, MixSettings
from downstream.tasks.target_scores import score_numbers

RNG = np.random.default_rng(0)
SCORES = torch.tensor(RNG.standard_normal((30, 4)).astype(np.float32))
LABELS = (RNG.random((30, 4)) < 0.4).astype(np.float32)


def label_model(**target: object) -> LabelSetModel:
    record = TargetRecord.model_validate({"kind": "multilabel", **target})
    kind, shape = MixKind("average"), FeatureShape(3, 6, num_poolings=2)
    model = make_text_model(Outputs(4, record), kind, MixSettings(), HeadSettings(), shape, 0)
    assert isinstance(model, LabelSetModel)
    return model


def number_model(mean: float, std: float) -> NumberModel:
    record = TargetRecord(kind="regression", mean=mean, std=std)
    kind, shape = MixKind("average"), FeatureShape(3, 6, num_poolings=2)
    model = make_text_model(Outputs(1, record), kind, MixSettings(), HeadSettings(), shape, 0)
    assert isinstance(model, NumberModel)
    return model


def test_evaluation_of_labels_agrees_with_loss_and_sklearn() -> None:
    model = label_model()
    decoded = model.decode(SCORES)
    evaluation = model.evaluate(decoded, LABELS)
    labels = torch.from_numpy(LABELS)
    assert evaluation.loss == pytest.approx(model.loss(SCORES, labels).item(), abs=1e-5)
    expected = F.binary_cross_entropy(SCORES.sigmoid(), labels)
    assert evaluation.loss == pytest.approx(expected.item(), abs=1e-5)
    assert evaluation.accuracy == pytest.approx(
        f1_score(LABELS, (SCORES > 0).numpy(), average="micro")
    )
    share = ((SCORES > 0).numpy() == (LABELS > 0)).mean()
    assert model.count_correct(SCORES, labels).item() / 30 == pytest.approx(share)
    np.testing.assert_allclose(decoded["probability"], SCORES.sigmoid().numpy(), atol=1e-6)


def test_higher_threshold_predicts_fewer_labels() -> None:
    low, high = (label_model(threshold=t).decode(SCORES)["chosen"].sum() for t in (0.3, 0.7))
    assert high < (SCORES > 0).sum() < low


def test_best_threshold_has_the_highest_f1() -> None:
    probabilities = SCORES.sigmoid().numpy().round(1)  # with ties
    chosen = best_threshold(probabilities, LABELS)
    scores = {
        t: micro_f1(LABELS > 0, probabilities >= t) for t in np.arange(0.01, 1, 0.01).tolist()
    }
    assert micro_f1(LABELS > 0, probabilities >= chosen) == pytest.approx(max(scores.values()))
    assert max(scores.values()) > scores[0.5]
    assert best_threshold(probabilities, np.zeros_like(LABELS)) == 0.5


def test_evaluation_chooses_the_threshold() -> None:
    model = label_model(threshold="validation")
    evaluation = model.evaluate(model.decode(SCORES), LABELS)
    expected = best_threshold(SCORES.sigmoid().numpy(), LABELS)
    assert model.state_dict()["threshold"].item() == pytest.approx(expected)
    chosen = model.decode(SCORES)["chosen"]
    assert micro_f1(LABELS > 0, chosen) == evaluation.accuracy
    fixed = label_model()
    assert fixed.evaluate(fixed.decode(SCORES), LABELS).accuracy < evaluation.accuracy
    assert fixed.threshold.item() == 0.5


def test_evaluation_of_numbers_agrees_with_loss() -> None:
    model = number_model(mean=10.0, std=4.0)
    numbers = (10 + 4 * RNG.standard_normal(30)).astype(np.float32)
    decoded = model.decode(SCORES[:, :1])
    np.testing.assert_allclose(decoded, 10 + 4 * SCORES[:, 0].numpy(), rtol=1e-5)
    evaluation = model.evaluate(decoded, numbers)
    loss = model.loss(SCORES[:, :1], torch.from_numpy(numbers))
    assert evaluation.loss == pytest.approx(loss.item(), rel=1e-5)
    assert evaluation.loss == pytest.approx(float(((decoded - numbers) ** 2).mean() / 16), rel=1e-5)
    assert evaluation.accuracy == pytest.approx(score_numbers(numbers, decoded).r2)
    assert model.evaluate(decoded, np.full_like(numbers, 3)).accuracy == 0
    counted = model.count_correct(SCORES[:, :1], torch.from_numpy(numbers))
    assert counted.item() / 30 == pytest.approx(1 - loss.item(), rel=1e-4)


def test_f1_without_any_labels_is_zero() -> None:
    nothing = np.zeros((2, 3), dtype=np.bool_)
    assert micro_f1(nothing, nothing) == 0.0
