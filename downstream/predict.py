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
Words, spans, answers and mentions have character offsets. `--input -` reads standard input until
its end: one text per line (for pairs, two texts separated by a tab; for questions, a JSON object),
or with `--format`, the content of a file of that format. `--output -` writes .jsonl to standard
output, in UTF-8. An existing output is replaced only with `--overwrite`, and never if it is the
input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from bilm.distributed.process import share_cores
from bilm.errors import CheckpointError, ConfigError, run_command
from bilm.files.strict_json import read_json
from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision
from bilm.text.lines import LineReader
from downstream.predictors import records
from downstream.predictors.head_files import CLASSES
from downstream.predictors.output import STANDARD, check_output, write_output
from downstream.settings.coreference import COREF_FILE
from downstream.settings.flags import names
from downstream.settings.pairs import FIRST_COLUMN, PAIR_FILE, SECOND_COLUMN
from downstream.settings.sections import Format
from downstream.settings.spans import ANSWERER_FILE
from downstream.settings.tagging import TAGGER_FILE
from downstream.texts.asked import AskedQuestion, read_asked
from downstream.texts.labelled import TextColumns, read_texts
from downstream.texts.pairs import PairColumns, pairs_of_lines, read_pairs
from downstream.texts.unlabelled import StandardInput, UnlabelledText, read_unlabelled

if TYPE_CHECKING:
    from downstream.predictors.loading import Places


def main(argv: Sequence[str] | None = None) -> int:
    """Read the texts, predict, and write the predictions."""
    arguments = _parse(argv)
    predict = _prepare(arguments)
    share_cores()
    # torch is imported here, so that --help and errors in the input appear immediately.
    from downstream.predictors.loading import Places

    places = Places(arguments.model, arguments.vectors, arguments.device, arguments.precision)
    suffix = ".jsonl" if arguments.output == STANDARD else arguments.output.suffix
    write_output(arguments.output, predict(places, suffix))
    return 0


def _prepare(arguments: argparse.Namespace) -> Callable[[Places, str], str]:
    """Check the output, read the input, and return the function that predicts."""
    head = arguments.head
    if not any((head / name).exists() for name in CLASSES):
        raise CheckpointError(
            f"{head} is not a trained head: it does not exist, or has none of "
            f"{', '.join(CLASSES)}. Pass the output directory of a command that trains heads"
        )
    if (head / ANSWERER_FILE).exists():
        _check_output(arguments, (".jsonl",))
        return partial(records.answer, head, _read_questions(arguments))
    if (head / COREF_FILE).exists():
        _check_output(arguments, (".jsonl",))
        return partial(records.resolve, head, _read_unlabelled(arguments))
    if (head / TAGGER_FILE).exists():
        has_roles = _has_roles(head)
        _check_output(arguments, (".jsonl",) if has_roles else (".jsonl", ".tsv"))
        return partial(records.tag, head, _read_unlabelled(arguments))
    _check_output(arguments, (".csv", ".jsonl"))
    if (head / PAIR_FILE).exists():
        return partial(records.classify_pairs, head, _read_pairs(arguments))
    return partial(_classify, head, read_texts(_open_input(arguments), _columns(arguments)))


def _has_roles(head: Path) -> bool:
    """Return whether a tagger labels roles; everything else in its description is checked later."""
    tree = read_json(head / TAGGER_FILE, CheckpointError)
    return isinstance(tree, dict) and tree.get("has_predicates") is True


def _check_output(arguments: argparse.Namespace, suffixes: tuple[str, ...]) -> None:
    check_output(arguments.output, suffixes, arguments.input, arguments.overwrite)


def _open_input(arguments: argparse.Namespace) -> LineReader:
    """Return the reader of the input file or of standard input."""
    if arguments.input != STANDARD:
        return LineReader(arguments.input)
    if arguments.format == "parquet":
        raise ConfigError("standard input cannot be read as parquet; pass the path of the file")
    return StandardInput(sys.stdin.buffer.read())


def _columns(arguments: argparse.Namespace) -> TextColumns:
    """Return the columns of texts; standard input has one text per line by default."""
    is_lines = arguments.input == STANDARD and arguments.format is None
    return TextColumns(
        text_columns=names(arguments.text_columns),
        file_format="text" if is_lines else arguments.format,
        header=arguments.header,
    )


def _read_unlabelled(arguments: argparse.Namespace) -> list[UnlabelledText]:
    """Read texts as they are in the input, for heads that return offsets."""
    return read_unlabelled(_open_input(arguments), _columns(arguments))


def _read_pairs(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    reader = _open_input(arguments)
    if arguments.input == STANDARD and arguments.format in (None, "text"):
        return pairs_of_lines(reader)
    columns = PairColumns(arguments.first_column, arguments.second_column)
    return read_pairs(reader, columns, arguments.format, arguments.header)


def _read_questions(arguments: argparse.Namespace) -> list[AskedQuestion]:
    if arguments.format not in (None, "jsonl"):
        raise ConfigError(f"--format is {arguments.format}; questions are read only as jsonl")
    return read_asked(_open_input(arguments))


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
    add("--overwrite", action="store_true", help="replace an existing output")
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
        help="format of the input (default: by file extension; for standard input, text)",
    )
    add(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the input has a header (default: if a column is given by name)",
    )


if __name__ == "__main__":
    run_command(main)
