"""Measure layers on parts of speech and senses: `python -m experiments.layer_tables --data DIR`.

Runs `bilm tasks probe` with three seeds and `bilm tasks senses`, keeps a small record of each, and
writes the tables of docs/analyses.md. A command with a record is not run again. It takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError, ConfigError, run_command
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from downstream.reports.pages import MAX_RESULTS_BYTES, RESULTS_FILE, markdown_table, percent
from experiments.marked_pages import put_part
from experiments.stages import Done, Stages
from experiments.task_table.heads import Places
from experiments.task_table.outcomes import is_recorded

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "docs" / "analyses.md"

RECORDS = ROOT / "docs" / "results" / "analyses"

PROBES = ("probe", "probe_seed1", "probe_seed2")  # one for each seed, from 0
SENSES = "senses"

TEST_SETS = {
    "senseval2": "Senseval-2",
    "senseval3": "Senseval-3",
    "semeval2007": "SemEval-2007",
    "semeval2013": "SemEval-2013",
    "semeval2015": "SemEval-2015",
}
PARTS_OF_SPEECH = {"NOUN": "nouns", "VERB": "verbs", "ADJ": "adjectives", "ADV": "adverbs"}

TAG_BASELINE, SENSE_BASELINE = "most frequent tag of the word", "most frequent sense"
LAYER_1, LAYER_2 = "layer 1", "layer 2"
ALL_SETS = "all"

Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the commands that have no record, then write the page."""
    arguments = _parser().parse_args(argv)
    if not arguments.write_only:
        if not arguments.data.is_dir():
            raise ConfigError(f"{arguments.data} is not a directory; see docs/analyses.md")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        _measure(Places(arguments.data, arguments.work, arguments.records), arguments.model)
    write_page(arguments.records)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.layer_tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="directory with ud_english_ewt and tasks/wsd"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("results/layers"), help="directory for all output"
    )
    parser.add_argument(
        "--records", type=Path, default=RECORDS, help="directory of the records (default: docs)"
    )
    parser.add_argument("--model", default="english-small", help="the biLM (default: %(default)s)")
    parser.add_argument(
        "--write-only", action="store_true", help="only write the page from existing records"
    )
    return parser


def _measure(places: Places, model: str) -> None:
    places.records.mkdir(parents=True, exist_ok=True)
    stages = Stages(places.work)
    for name, words in _commands(places.data, places.work).items():
        output = places.work / name
        command = ["python", "-m", "bilm", "tasks", *words, "--model", model]
        command += ["--output", str(output), "--overwrite"]
        path, portable = places.records / f"{name}.json", places.portable(command)
        if is_recorded(path, portable):
            print(f"{name}: already recorded", flush=True)
        else:
            write_record(path, portable, stages.run(name, command), output)


def _commands(data: Path, work: Path) -> dict[str, list[str]]:
    """Return the subcommand and the files of each record."""
    treebank, senses = data / "ud_english_ewt", data / "tasks" / "wsd"
    commands = {}
    for seed, name in enumerate(PROBES):
        files = ["--train", str(treebank / "train.conllu.gz")]
        files += ["--test", str(treebank / "test.conllu.gz")]
        commands[name] = ["probe", *files, "--seed", str(seed)]
    tests = [str(senses / f"{name}.jsonl.gz") for name in TEST_SETS]
    files = ["--train", str(senses / "semcor3.0_train.jsonl.gz"), "--test", *tests]
    commands[SENSES] = ["senses", *files, "--cache", str(work / "cache")]
    return commands


def write_record(path: Path, command: Sequence[str], done: Done, output: Path) -> None:
    """Write the record of a command from its report in `output`, without confusion matrices."""
    report: Record = read_json(output / RESULTS_FILE, CheckpointError, MAX_RESULTS_BYTES)
    kept: Record
    if "only_correct" in report:
        names = ("counts", "scores", "by_pos", "only_correct")
        kept = {name: report[name] for name in names}
        kept["train"] = {k: v for k, v in report["train"].items() if k != "file"}
    else:
        accuracy = {name: scores["accuracy"] for name, scores in report["scores"].items()}
        kept = {"words": report["words"], "seed": report["seed"], "accuracy": accuracy}
    tree = {
        "command": list(command),
        "processor_seconds": done.processor_seconds,
        "peak_memory_gib": done.peak_memory_gib,
        **kept,
    }
    write_text(path, json.dumps(tree, indent=1) + "\n")


def write_page(records: Path) -> None:
    """Replace the tables and the facts between the markers of the page."""
    read = {name: _read(records / f"{name}.json") for name in (*PROBES, SENSES)}
    probes, senses = [read[name] for name in PROBES], read[SENSES]
    text = PAGE.read_text(encoding="utf-8")
    text = put_part(text, "layer_scores", layers_table(probes[0], senses), PAGE)
    text = put_part(text, "sense_scores", senses_table(senses), PAGE)
    text = put_part(text, "layer_facts", facts(probes, senses), PAGE)
    write_text(PAGE, text)


def _read(path: Path) -> Record:
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; run this without --write-only")
    tree: Record = read_json(path, CheckpointError)
    return tree


def layers_table(probe: Record, senses: Record) -> str:
    """Return the accuracy on parts of speech and the F1 on senses by layer."""
    tags, f1 = probe["accuracy"], _f1(senses["scores"][ALL_SETS])
    rows = [["vectors", "parts of speech: accuracy", "senses: F1"]]
    baseline = "most frequent tag, most frequent sense"
    rows.append([baseline, percent(tags[TAG_BASELINE]), percent(f1[SENSE_BASELINE])])
    for name in f1:
        if name != SENSE_BASELINE:
            rows.append([name, percent(tags[name]) if name in tags else "-", percent(f1[name])])
    return markdown_table(rows)


def senses_table(senses: Record) -> str:
    """Return F1 by test set and by part of speech."""
    columns = [_f1(senses["scores"][name]) for name in TEST_SETS]
    columns += [_f1(senses["by_pos"][name]) for name in PARTS_OF_SPEECH]
    rows = [["vectors", *TEST_SETS.values(), *PARTS_OF_SPEECH.values()]]
    rows += [[name, *(percent(own[name]) for own in columns)] for name in columns[0]]
    return markdown_table(rows)


def _f1(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: own["f1"] for name, own in scores.items()}


def facts(probes: Sequence[Record], senses: Record) -> str:
    """Return the figures that are not in the tables, as a list."""
    every, counts = senses["scores"][ALL_SETS], senses["counts"][ALL_SETS]
    only = senses["only_correct"]
    better = [n for n in TEST_SETS if _gain(senses["scores"][n], LAYER_1, LAYER_2) > 0]
    accuracies = [record["accuracy"] for record in probes]
    pairs = (f"{percent(own[LAYER_1])} and {percent(own[LAYER_2])}" for own in accuracies)
    ratios = (
        f"{percent(every[name]['precision'])} and {percent(every[name]['recall'])} ({name})"
        for name in (LAYER_2, SENSE_BASELINE)
    )
    missing = counts["without_answer"]
    seconds = [record["processor_seconds"] for record in (*probes, senses)]
    memory = [record["peak_memory_gib"] for record in (*probes, senses)]
    return "\n".join(
        [
            f"- Senses: layer 2 is better than layer 1 on {len(better)} of {len(TEST_SETS)} test "
            f"sets. Of these two, only layer 2 is correct for {only[LAYER_2][LAYER_1]} instances, "
            f"and only layer 1 for {only[LAYER_1][LAYER_2]}.",
            f"- Parts of speech, layer 1 and layer 2 by seed: {_listed(pairs)}.",
            f"- Precision and recall of senses: {_listed(ratios)}. The lemma of {missing} "
            f"instances ({missing / counts['instances']:.1%}) is not in SemCor, so they have no "
            "answer.",
            f"- Processor time: {sum(seconds[:-1]):.0f} s for the probes of all seeds, and "
            f"{seconds[-1]:.0f} s for senses. Peak memory: {max(memory[:-1]):.1f} GiB and "
            f"{memory[-1]:.1f} GiB.",
        ]
    )


def _gain(scores: Mapping[str, Mapping[str, float]], one: str, other: str) -> float:
    return scores[other]["f1"] - scores[one]["f1"]


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)


if __name__ == "__main__":
    run_command(main)
