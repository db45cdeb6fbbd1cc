"""The output of `downstream.predict` for each kind of head: a record per text, or a table.

Most functions read the head in `directory`, predict, and return the content of a file with the
given suffix. The predictors, which import torch, are imported when a function is called.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import CorpusError
from downstream.texts.asked import AskedQuestion
from downstream.texts.json_words import has_break
from downstream.texts.unlabelled import UnlabelledText

if TYPE_CHECKING:
    from downstream.heads.class_outputs import Probabilities
    from downstream.predictors.loading import Places


def text_targets(directory: Path, texts: Sequence[str], places: Places, suffix: str) -> str:
    """Return the labels or the number of each text, for a head with another target than a class."""
    from downstream.heads.saved_head import Description

    if Description.read(directory).target.kind == "regression":
        return _numbers(directory, texts, places, suffix)
    return _label_sets(directory, texts, places, suffix)


def _numbers(directory: Path, texts: Sequence[str], places: Places, suffix: str) -> str:
    from downstream.predictors.texts import TextRegressor

    predicted = TextRegressor.open(directory, places).predict(texts, None)
    numbers = [float(f"{number:.7g}") for number in predicted]
    if suffix == ".csv":
        return _table(["prediction"], [[number] for number in numbers])
    return _json_lines([{"prediction": number} for number in numbers])


def _label_sets(directory: Path, texts: Sequence[str], places: Places, suffix: str) -> str:
    from downstream.predictors.texts import TextLabeler

    labeler = TextLabeler.open(directory, places)
    predicted = labeler.predict_sets(texts, progress=None)
    names, rounded = labeler.labels, _rounded(predicted["probability"])
    sets = [[n for n, c in zip(names, row, strict=True) if c] for row in predicted["chosen"]]
    if suffix == ".csv":
        separator = labeler.description.target.separator
        rows = [[separator.join(s), *ps] for s, ps in zip(sets, rounded, strict=True)]
        return _table(["labels", *_headings(names)], rows)
    return _json_lines(
        [
            {"labels": labels, "probabilities": dict(zip(names, row, strict=True))}
            for labels, row in zip(sets, rounded, strict=True)
        ]
    )


def classify_pairs(
    directory: Path, pairs: Sequence[tuple[str, str]], places: Places, suffix: str
) -> str:
    """Return the class of each pair of texts."""
    from downstream.predictors.pairs import PairClassifier

    classifier = PairClassifier.open(directory, places)
    return classes(suffix, classifier.classes, classifier.predict_proba(pairs))


def classes(suffix: str, names: Sequence[str], probabilities: Probabilities) -> str:
    """Return the most probable class of each example, and the probability of each class."""
    chosen = [names[int(row.argmax())] for row in probabilities]
    rounded = _rounded(probabilities)
    if suffix == ".csv":
        rows = [[label, max(row), *row] for label, row in zip(chosen, rounded, strict=True)]
        return _table(["label", "probability", *_headings(names)], rows)
    return _json_lines(
        [
            {
                "label": label,
                "probability": max(row),
                "probabilities": dict(zip(names, row, strict=True)),
            }
            for label, row in zip(chosen, rounded, strict=True)
        ]
    )


def tag(directory: Path, texts: Sequence[UnlabelledText], places: Places, suffix: str) -> str:
    """Return the words of each text with their tags, or its predicates with their arguments."""
    from downstream.heads.tagger import TaggerDescription
    from downstream.predictors.tagger import RoleLabeler, Tagger

    contents, names = [one.content for one in texts], [one.place for one in texts]
    if suffix == ".tsv":
        for one in texts:
            _check_cells(one.words or (), one.place)
    if TaggerDescription.read(directory).has_predicates:
        frames = RoleLabeler.open(directory, places).predict(contents, names=names)
        records: list[dict[str, Any]] = [
            {"text": one.text, "frames": [asdict(frame) for frame in found]}
            for one, found in zip(texts, frames, strict=True)
        ]
        return _json_lines(records)
    tagged = Tagger.open(directory, places).predict(contents, names=names)
    if suffix == ".tsv":
        for one, found in zip(texts, tagged, strict=True):
            _check_cells([w.word for w in found.words], one.place)
        sentences = ("".join(f"{w.word}\t{w.tag}\n" for w in found.words) for found in tagged)
        return "\n".join(sentences)
    return _json_lines(
        [{"text": one.text, **asdict(found)} for one, found in zip(texts, tagged, strict=True)]
    )


def resolve(directory: Path, texts: Sequence[UnlabelledText], places: Places, suffix: str) -> str:
    """Return the clusters of each document."""
    from downstream.predictors.coreference import CoreferenceResolver

    resolver = CoreferenceResolver.open(directory, places)
    resolved = resolver.predict([one.content for one in texts], names=[one.place for one in texts])
    return _json_lines(
        [{"text": one.text, **asdict(found)} for one, found in zip(texts, resolved, strict=True)]
    )


def answer(directory: Path, asked: Sequence[AskedQuestion], places: Places, suffix: str) -> str:
    """Return the answer to each question."""
    from downstream.predictors.answerer import QuestionAnswerer

    answerer = QuestionAnswerer.open(directory, places)
    answers = answerer.predict([(one.question, one.context) for one in asked])
    return _json_lines(
        [
            {
                **({} if one.id is None else {"id": one.id}),
                "question": one.question,
                **asdict(found),
            }
            for one, found in zip(asked, answers, strict=True)
        ]
    )


def _check_cells(words: Sequence[str], place: str) -> None:
    """Reject words that would be several columns or lines of a .tsv file."""
    for word in words:
        if has_break(word):
            raise CorpusError(
                f"{place}: the word {word!r:.60} contains a tab or a line break, which a .tsv file "
                "cannot represent; use an --output that ends in .jsonl"
            )


def _headings(names: Sequence[str]) -> list[str]:
    return [f"p({name})" for name in names]


def _rounded(probabilities: Probabilities) -> list[list[float]]:
    return [[round(float(p), 6) for p in row] for row in probabilities]


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue()


def _json_lines(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
