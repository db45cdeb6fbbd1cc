"""Classify a file of texts: `python -m downstream.predict --classifier DIR --input F --output P`

The output, .csv or .jsonl, has one row per text, in the order of the input: the class, its
probability, and the probability of each class.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, OutputError, run_command
from bilm.files.writing import atomic_file, disk_full_message, is_disk_full
from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision
from downstream.reports.pages import check_writable
from downstream.settings.flags import names
from downstream.settings.sections import Format
from downstream.texts.labelled import read_texts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def main(argv: Sequence[str] | None = None) -> int:
    """Read the texts, classify them, and write the predictions."""
    arguments = _parse(argv)
    if arguments.output.suffix not in (".csv", ".jsonl"):
        raise ConfigError(f"--output is {arguments.output}; its name must end in .csv or .jsonl")
    if arguments.output.is_dir():
        raise ConfigError(f"--output is {arguments.output}, a directory; pass a file path")
    check_writable(arguments.output)
    texts = read_texts(
        arguments.input,
        text_columns=names(arguments.text_columns),
        file_format=arguments.format,
        header=arguments.header,
    )
    share_cores()
    # torch is imported here, so that --help and errors in the input appear immediately.
    from downstream.classifier import TextClassifier

    classifier = TextClassifier.from_pretrained(
        arguments.classifier,
        model=arguments.model,
        vectors=arguments.vectors,
        device=arguments.device,
        precision=arguments.precision,
    )
    _write(arguments.output, classifier.classes, classifier.predict_proba(texts, progress=None))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--classifier", type=Path, required=True, help="output directory of downstream.classify")
    add("--input", type=Path, required=True, help=".csv, .tsv, .jsonl, .json, .txt or .parquet")
    add("--output", type=Path, required=True, help="file of predictions, .csv or .jsonl")
    add(
        "--text-columns",
        default="text",
        help="names or numbers (from 1) of the text columns, separated by commas "
        "(default: %(default)s)",
    )
    add(
        "--format",
        choices=get_args(Format),
        help="format of the input (default: by file extension)",
    )
    add(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the input has a header (default: if a column is given by name)",
    )
    add("--model", type=Path, help="path of the biLM (default: the recorded one)")
    add("--vectors", type=Path, help="path of the word vectors (default: the recorded one)")
    add("--device", default=AUTO, help=DEVICE_HELP)
    add("--precision", choices=get_args(Precision), default="float32", help=PRECISION_HELP)
    return parser.parse_args(argv)


def _write(path: Path, classes: Sequence[str], probabilities: npt.NDArray[np.float32]) -> None:
    text = _predictions(path.suffix, classes, probabilities)
    try:
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
    except OSError as e:
        if not is_disk_full(e):
            raise
        raise OutputError(disk_full_message(path, len(text.encode()))) from None


def _predictions(
    suffix: str, classes: Sequence[str], probabilities: npt.NDArray[np.float32]
) -> str:
    """Return the content of the output."""
    text = io.StringIO()
    table = csv.writer(text) if suffix == ".csv" else None
    if table is not None:
        table.writerow(["label", "probability", *(f"p({name})" for name in classes)])
    for row in probabilities:
        label, rounded = classes[int(row.argmax())], [round(float(p), 6) for p in row]
        if table is not None:
            table.writerow([label, max(rounded), *rounded])
        else:
            record = {
                "label": label,
                "probability": max(rounded),
                "probabilities": dict(zip(classes, rounded, strict=True)),
            }
            text.write(json.dumps(record, ensure_ascii=False) + "\n")
    return text.getvalue()


if __name__ == "__main__":
    run_command(main)
