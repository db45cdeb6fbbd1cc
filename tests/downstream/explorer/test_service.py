"""Requests that are computed together get the answers that each gets alone, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from bilm.embedding.embedder import Embedder
from bilm.embedding.scorer import Scorer
from downstream.classifier import TextClassifier
from downstream.classify import main as classify
from downstream.explorer.batching import BatchLimits
from downstream.explorer.limits import RequestLimits
from downstream.explorer.service import Loaded, PredictionJob, Service, scorer_of
from downstream.predictors.loading import Places
from downstream.predictors.tagger import Tagger
from downstream.tag import main as tag
from tests.downstream.explorer.small_models import INVARIANT
from tests.downstream.order_task import order_texts, tiny_bilm, write_csv
from tests.downstream.tag_task import make_tag_place, tag_flags

TEXTS = [text for _, text in order_texts(12, 5)]
WORDS = [text.split() for text in TEXTS]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    place = tmp_path_factory.mktemp("service")
    make_tag_place(place)
    write_csv(place / "train.csv", order_texts(60, 1))
    model = f"--model={place / 'model'}"
    data = [f"--train={place / 'train.csv'}", f"--test={place / 'train.csv'}"]
    own = ["--head=bilstm", "--encoder-dim=8", "--epochs=1", "--seeds=1", "--device=cpu"]
    classify([model, *data, *own, f"--output={place / 'report'}", f"--cache={place / 'cache'}"])
    tag([model, *tag_flags(place, "tags", "--device=cpu", "--epochs=1")])
    return load(place)


def load(place: Path) -> Loaded:
    pretrained = tiny_bilm()
    embedder = Embedder(pretrained, INVARIANT, device="cpu")
    places = Places(device="cpu", embedder=embedder)
    classifier = TextClassifier.open(place / "report", places)
    tagger = Tagger.open(place / "tags", places)
    scorer = scorer_of(pretrained, embedder)
    return Loaded("small", embedder, scorer, None, classifier, (), tagger)


Operation = Callable[[Service, int], Awaitable[Any]]

OPERATIONS: dict[str, Operation] = {
    "score": lambda service, i: service.scores([WORDS[i]]),
    "predict": lambda service, i: service.predictions(
        [PredictionJob(WORDS[i], i % 3, 3 + i % 2, d) for d in ("forward", "backward", "both")]
    ),
    "classify": lambda service, i: service.probabilities([TEXTS[i]], effects=i % 2 == 0),
    "tag": lambda service, i: service.tags([TEXTS[i]]),
    "embed": lambda service, i: service.layers([WORDS[i]]),
}


def run(loaded: Loaded, operation: Operation, numbers: Sequence[int]) -> tuple[list[str], str]:
    """Return the answers to requests that wait at the same time, as text, and the metrics."""
    service = Service(loaded, RequestLimits(), BatchLimits())

    async def submit() -> list[Any]:
        return await asyncio.gather(*(operation(service, i) for i in numbers))

    return [plain(own) for own in asyncio.run(submit())], service.metrics.text(0)


def plain(answer: Any) -> str:
    """Return all values of an answer, with all digits."""
    if hasattr(answer, "__dataclass_fields__"):
        answer = [getattr(answer, name) for name in answer.__dataclass_fields__]
    if hasattr(answer, "tolist"):
        answer = answer.tolist()
    return repr(list(map(plain, answer)) if isinstance(answer, list | tuple) else answer)


@pytest.mark.parametrize("name", OPERATIONS)
def test_batched_answers_equal_those_alone(loaded: Loaded, name: str) -> None:
    if name in ("score", "predict") and loaded.scorer is None:
        pytest.fail("the model has no softmax")
    operation = OPERATIONS[name]
    together, metrics = run(loaded, operation, range(len(TEXTS)))
    assert f"bilm_batched_requests_total {len(TEXTS)}" in metrics
    assert float(metrics.partition("\nbilm_batches_total ")[2].split()[0]) < len(TEXTS)
    alone = [run(loaded, operation, [i])[0][0] for i in range(len(TEXTS))]
    assert together == alone
    assert len(set(alone)) > 1


def test_reads_the_sentences_of_several_requests_at_once(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    score = Scorer.score

    def spy(self: Scorer, sentences: Any, **options: Any) -> Any:
        sizes.append(len(sentences))
        return score(self, sentences, **options)

    monkeypatch.setattr(Scorer, "score", spy)
    run(loaded, OPERATIONS["score"], range(len(TEXTS)))
    assert max(sizes) > 1
