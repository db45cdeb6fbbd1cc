"""The output of `downstream.predict` for heads with any number of labels, and for regression."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from downstream.heads.saved_head import Description
from downstream.predictors.loading import Places
from downstream.predictors.texts import TextLabeler, TextRegressor


def target_predictions(directory: Path, places: Places, texts: Sequence[str], suffix: str) -> str:
    """Predict with the head in `directory`, and return the rows of a .csv or .jsonl file."""
    if Description.read(directory).target.kind == "regression":
        return _numbers(TextRegressor.from_pretrained(directory, **asdict(places)), texts, suffix)
    return _label_sets(TextLabeler.from_pretrained(directory, **asdict(places)), texts, suffix)


def _numbers(regressor: TextRegressor, texts: Sequence[str], suffix: str) -> str:
    numbers = [float(f"{number:.7g}") for number in regressor.predict(texts, progress=None)]
    if suffix == ".csv":
        return _table(["prediction"], [[number] for number in numbers])
    return _json_lines([{"prediction": number} for number in numbers])


def _label_sets(labeler: TextLabeler, texts: Sequence[str], suffix: str) -> str:
    predicted = labeler.predict_sets(texts, progress=None)
    names = labeler.labels
    sets = [[n for n, c in zip(names, row, strict=True) if c] for row in predicted["chosen"]]
    rounded = [[round(float(p), 6) for p in row] for row in predicted["probability"]]
    if suffix == ".csv":
        separator = labeler.description.target.separator
        rows = [[separator.join(s), *ps] for s, ps in zip(sets, rounded, strict=True)]
        return _table(["labels", *(f"p({name})" for name in names)], rows)
    return _json_lines(
        [
            {"labels": labels, "probabilities": dict(zip(names, row, strict=True))}
            for labels, row in zip(sets, rounded, strict=True)
        ]
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue()


def _json_lines(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
