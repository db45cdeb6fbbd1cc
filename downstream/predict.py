"""Predict with a trained head: `python -m downstream.predict --head DIR --input F --output P`

The head is one of `downstream.classify`, `downstream.pair`, `downstream.tag`, `downstream.srl`,
`downstream.span` or `downstream.coref`. The output has one record per text, in the order of the
input:
- for a classifier of texts or pairs, a row of a .csv or .jsonl file with the class, its
  probability, and the probability of each class (for several labels, the labels and the probability
  of each; for regression, a number);
- for a tagger, a line of a .jsonl file with the words, their tags and the spans, or a .tsv file of
  words and tags;
- for semantic roles, a line of a .jsonl file with the predicates and their arguments;
- for answers to questions, a line of a .jsonl file per question; the input is a file of JSON lines
  with `context` and `question`, `questions` or `qas`;
- for coreference, a line of a .jsonl file with the clusters of a document.
Words, spans, answers and mentions have character offsets. `--input -` reads one text per line from
standard input until its end (for pairs, two texts separated by a tab, or JSON lines with `--format
jsonl`), and `--output -` writes .jsonl to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from bilm.distributed.process import share_cores
from bilm.errors import CheckpointError, ConfigError, OutputError, run_command
from bilm.files.writing import atomic_file, disk_full_message, is_disk_full
from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision
from downstream.predictors import records
from downstream.reports.pages import check_writable
from downstream.settings.coreference import COREF_FILE
from downstream.settings.flags import names
from downstream.settings.pairs import FIRST_COLUMN, PAIR_FILE, SECOND_COLUMN
from downstream.settings.sections import CLASSIFIER_FILE, Format
from downstream.settings.spans import ANSWERER_FILE
from downstream.settings.tagging import TAGGER_FILE
from downstream.texts.asked import AskedQuestion, asked_in_lines, read_asked
from downstream.texts.labelled import TextColumns, read_texts
from downstream.texts.pairs import PairColumns, pairs_of_lines, read_pairs
from downstream.texts.unlabelled import (
    STANDARD_INPUT,
    UnlabelledText,
    lines_of_input,
    read_unlabelled,
    unlabelled_lines,
)

if TYPE_CHECKING:
    from downstream.predictors.loading import Places

STANDARD = Path("-")  # standard input or output

_HEAD_FILES = (CLASSIFIER_FILE, PAIR_FILE, TAGGER_FILE, ANSWERER_FILE, COREF_FILE)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the texts, predict, and write the predictions."""
    arguments = _parse(argv)
    predict = _prepare(arguments)
    share_cores()
    # torch is imported here, so that --help and errors in the input appear immediately.
    from downstream.predictors.loading import Places

    places = Places(arguments.model, arguments.vectors, arguments.device, arguments.precision)
    suffix = ".jsonl" if arguments.output == STANDARD else arguments.output.suffix
    _write(arguments.output, predict(places, suffix))
    return 0


def _prepare(arguments: argparse.Namespace) -> Callable[[Places, str], str]:
    """Check the output, read the input, and return the function that predicts."""
    head, output = arguments.head, arguments.output
    if not any((head / name).exists() for name in _HEAD_FILES):
        raise CheckpointError(
            f"{head} is not a trained head: it does not exist, or has none of "
            f"{', '.join(_HEAD_FILES)}. Pass the output directory of a command that trains heads"
        )
    if (head / ANSWERER_FILE).exists():
        _check_output(output, (".jsonl",))
        return partial(records.answer, head, _read_questions(arguments))
    if (head / COREF_FILE).exists():
        _check_output(output, (".jsonl",))
        return partial(records.resolve, head, _read_unlabelled(arguments))
    if (head / TAGGER_FILE).exists():
        _check_output(output, (".jsonl", ".tsv"))
        return partial(records.tag, head, _read_unlabelled(arguments))
    _check_output(output, (".csv", ".jsonl"))
    if (head / PAIR_FILE).exists():
        return partial(records.classify_pairs, head, _read_pairs(arguments))
    return partial(_classify, head, _read_texts(arguments))


def _check_output(output: Path, suffixes: tuple[str, ...]) -> None:
    if output == STANDARD:
        return
    if output.suffix not in suffixes:
        raise ConfigError(f"--output is {output}; its name must end in {' or '.join(suffixes)}")
    if output.is_dir():
        raise ConfigError(f"--output is {output}, a directory; pass a file path")
    check_writable(output)


def _read_texts(arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.input == STANDARD:
        return tuple(_standard_input())
    return read_texts(
        arguments.input,
        text_columns=names(arguments.text_columns),
        file_format=arguments.format,
        header=arguments.header,
    )


def _read_unlabelled(arguments: argparse.Namespace) -> list[UnlabelledText]:
    """Read texts as they are in the input, for heads that return offsets."""
    if arguments.input == STANDARD:
        return unlabelled_lines(_standard_input())
    columns = TextColumns(
        text_columns=names(arguments.text_columns),
        file_format=arguments.format,
        header=arguments.header,
    )
    return read_unlabelled(arguments.input, columns)


def _read_pairs(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    columns = PairColumns(arguments.first_column, arguments.second_column)
    if arguments.input == STANDARD:
        lines = _standard_input()
        return list(pairs_of_lines(lines, columns, arguments.format, STANDARD_INPUT))
    return read_pairs(arguments.input, columns, arguments.format, arguments.header)


def _read_questions(arguments: argparse.Namespace) -> list[AskedQuestion]:
    if arguments.input == STANDARD:
        return asked_in_lines(enumerate(_standard_input(), 1), STANDARD_INPUT)
    return read_asked(arguments.input)


def _standard_input() -> Iterator[str]:
    return lines_of_input(sys.stdin.buffer.read())


def _classify(directory: Path, texts: Sequence[str], places: Places, suffix: str) -> str:
    from downstream.classifier import TextClassifier
    from downstream.heads.saved_head import Description

    if Description.read(directory).target.kind != "class":
        return records.text_targets(directory, texts, places, suffix)
    classifier = TextClassifier.open(directory, places)
    probabilities = classifier.predict_proba(texts, progress=None)
    return records.classes(suffix, classifier.classes, probabilities)


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
        help="output directory of downstream.classify, downstream.pair, downstream.tag, "
        "downstream.srl, downstream.span or downstream.coref",
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
    _add_columns(parser)
    add("--model", type=Path, help="path of the biLM (default: the recorded one)")
    add("--vectors", type=Path, help="path of the word vectors (default: the recorded one)")
    add("--device", default=AUTO, help=DEVICE_HELP)
    add("--precision", choices=get_args(Precision), default="float32", help=PRECISION_HELP)
    return parser.parse_args(argv)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how the input is read."""
    add = parser.add_argument
    add(
        "--text-columns",
        default="text",
        help="names or numbers (from 1) of the text columns, separated by commas "
        "(default: %(default)s)",
    )
    for flag, default, which in (
        ("--first-column", FIRST_COLUMN, "first"),
        ("--second-column", SECOND_COLUMN, "second"),
    ):
        add(
            flag,
            default=default,
            help=f"for pairs: name or number of the column of {which} texts (default: %(default)s)",
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


if __name__ == "__main__":
    run_command(main)
