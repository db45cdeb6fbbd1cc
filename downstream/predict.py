"""Predict with a trained head: `python -m downstream.predict --head DIR --input F --output P`

The head is one of `downstream.classify`, `downstream.tag` or `downstream.srl`. The output has one
record per text, in the order of the input: for a classifier, a row of a .csv or .jsonl file with
the class, its probability, and the probability of each class (for several labels, the labels and
the probability of each; for regression, a number); for a tagger, a line of a .jsonl file with the
words, their tags and the spans, or a .tsv file of words and tags; for semantic roles, a line of a
.jsonl file with the predicates and their arguments. Words and spans have character offsets.
`--input -` reads one text per line from standard input until its end, and `--output -` writes
.jsonl to standard output.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, CorpusError, OutputError, run_command
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

    from downstream.predictors.loading import Places

STANDARD = Path("-")  # standard input or output


def main(argv: Sequence[str] | None = None) -> int:
    """Read the texts, predict, and write the predictions."""
    arguments = _parse(argv)
    is_tagger = (arguments.head / "tagger.json").exists()
    _check_output(arguments.output, (".jsonl", ".tsv") if is_tagger else (".csv", ".jsonl"))
    texts = _read_texts(arguments)
    share_cores()
    # torch is imported here, so that --help and errors in the input appear immediately.
    from downstream.predictors.loading import Places

    places = Places(arguments.model, arguments.vectors, arguments.device, arguments.precision)
    suffix = ".jsonl" if arguments.output == STANDARD else arguments.output.suffix
    if is_tagger:
        text = _tag(arguments.head, places, texts, suffix)
    else:
        text = _classify(arguments.head, places, texts, suffix)
    _write(arguments.output, text)
    return 0


def _check_output(output: Path, suffixes: tuple[str, str]) -> None:
    if output == STANDARD:
        return
    if output.suffix not in suffixes:
        raise ConfigError(f"--output is {output}; its name must end in {' or '.join(suffixes)}")
    if output.is_dir():
        raise ConfigError(f"--output is {output}, a directory; pass a file path")
    check_writable(output)


def _read_texts(arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.input == STANDARD:
        return tuple(standard_input_lines())
    return read_texts(
        arguments.input,
        text_columns=names(arguments.text_columns),
        file_format=arguments.format,
        header=arguments.header,
    )


def standard_input_lines() -> Iterator[str]:
    """Yield the lines of standard input; reject a line without text, and bytes that are not UTF-8.

    Empty lines at the end are ignored.
    """
    try:
        lines = sys.stdin.buffer.read().decode("utf-8").rstrip().splitlines()
    except UnicodeDecodeError as e:
        line = e.object.count(b"\n", 0, e.start) + 1
        raise CorpusError(f"standard input, line {line} is not UTF-8; convert it") from None
    if not lines:
        raise CorpusError("standard input is empty; expected one text per line")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise CorpusError(f"standard input, line {number} is empty; remove it")
        yield line


def _classify(directory: Path, places: Places, texts: Sequence[str], suffix: str) -> str:
    from downstream.classifier import TextClassifier
    from downstream.heads.saved_head import Description
    from downstream.predictors.text_records import target_predictions

    if Description.read(directory).target.kind != "class":
        return target_predictions(directory, places, texts, suffix)
    classifier = TextClassifier.from_pretrained(directory, **asdict(places))
    return _predictions(suffix, classifier.classes, classifier.predict_proba(texts, progress=None))


def _tag(directory: Path, places: Places, texts: Sequence[str], suffix: str) -> str:
    from downstream.heads.tagger import TaggerDescription
    from downstream.predictors.tagger import RoleLabeler, Tagger

    if TaggerDescription.read(directory).has_predicates:
        if suffix != ".jsonl":
            raise ConfigError(f"--output ends in {suffix}; for semantic roles use .jsonl")
        frames = RoleLabeler.from_pretrained(directory, **asdict(places)).predict(texts)
        records: list[dict[str, Any]] = [
            {"text": text, "frames": [asdict(frame) for frame in found]}
            for text, found in zip(texts, frames, strict=True)
        ]
        return _json_lines(records)
    tagged = Tagger.from_pretrained(directory, **asdict(places)).predict(texts)
    if suffix == ".tsv":
        sentences = ("".join(f"{w.word}\t{w.tag}\n" for w in one.words) for one in tagged)
        return "\n".join(sentences)
    return _json_lines(
        [{"text": text, **asdict(one)} for text, one in zip(texts, tagged, strict=True)]
    )


def _json_lines(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--head",
        "--classifier",
        type=Path,
        required=True,
        help="output directory of downstream.classify, downstream.tag or downstream.srl",
    )
    add(
        "--input",
        type=Path,
        required=True,
        help=".csv, .tsv, .jsonl, .json, .txt or .parquet, or - for standard input",
    )
    add(
        "--output",
        type=Path,
        required=True,
        help="file of predictions: .csv (classifiers), .tsv (taggers) or .jsonl, or - for standard "
        "output",
    )
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


def _write(path: Path, text: str) -> None:
    if path == STANDARD:
        sys.stdout.write(text)
        return
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
