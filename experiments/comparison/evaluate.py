"""Train and score heads on the features of a system: all shares of labels and seeds.

Memory: the features of all splits of a task in float32.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from bilm.distributed.process import configure_process
from bilm.errors import CheckpointError, run_command
from bilm.files.writing import write_text
from downstream.texts.tag_sequences import span_f1
from experiments.comparison.cache import open_stored
from experiments.comparison.fitting import Ids, Problem, Split, fit_share
from experiments.comparison.fractions import SHARES, chosen_share, strata_of
from experiments.comparison.tasks import SPLITS, TASKS, Example, read_examples


def main(argv: Sequence[str] | None = None) -> int:
    """Write the scores of a system on a task."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.evaluate")
    parser.add_argument("--system", type=Path, required=True, help="its system.json")
    parser.add_argument("--tasks", type=Path, required=True, help="output of .tasks")
    parser.add_argument("--features", type=Path, required=True, help="output of .cache")
    parser.add_argument("--task", choices=list(TASKS), required=True)
    parser.add_argument("--output", type=Path, required=True, help="the file to write, in JSON")
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--validation-only", action="store_true", help="for trials: no test data")
    arguments = parser.parse_args(argv)
    configure_process()
    splits = SPLITS[:2] if arguments.validation_only else SPLITS
    examples = {s: read_examples(arguments.tasks, arguments.task, s) for s in splits}
    problem = problem_of(arguments.task, examples, arguments.features)
    tree = {"task": arguments.task, "metric": TASKS[arguments.task].metric, "shares": {}}
    start = time.monotonic()
    for share in arguments.shares:
        places_of = _places(examples["train"], share, problem.is_pooled)
        result = fit_share(problem, places_of, arguments.seeds, not arguments.validation_only)
        tree["shares"][str(share)] = {"rows": [len(places_of(s)) for s in range(arguments.seeds)]}
        tree["shares"][str(share)] |= result
        print(f"{arguments.task} {share}: {result['validation']} {result.get('test')}", flush=True)
    tree["seconds"] = time.monotonic() - start
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_text(arguments.output, json.dumps(tree, indent=1) + "\n")
    return 0


def problem_of(task: str, examples: dict[str, list[Example]], features: Path) -> Problem:
    """Combine the examples of a task with the stored features of a system."""
    names = sorted({label for part in examples.values() for e in part for label in e.labels})
    ids = {name: i for i, name in enumerate(names)}
    splits = {}
    for split, part in examples.items():
        stored = open_stored(features, task, split)
        classes = np.array([ids[label] for e in part for label in e.labels], dtype=np.int64)
        if len(stored) != len(classes):
            raise CheckpointError(
                f"{features} has {len(stored)} rows for {task} {split}; expected {len(classes)}. "
                "Compute the features again"
            )
        score = _span_score(part, names) if TASKS[task].metric == "span F1" else _accuracy(classes)
        features_of_split = torch.from_numpy(np.asarray(stored, dtype=np.float32))
        splits[split] = Split(features_of_split, classes, score)
    return Problem(splits, len(names), TASKS[task].is_pooled)


def _accuracy(classes: Ids) -> Callable[[Ids], float]:
    return lambda predicted: float(np.mean(predicted == classes))


def _span_score(examples: Sequence[Example], names: Sequence[str]) -> Callable[[Ids], float]:
    edges = np.cumsum([0, *(len(e.labels) for e in examples)]).tolist()

    def score(predicted: Ids) -> float:
        tags = [names[i] for i in predicted.tolist()]
        cut = [tags[a:b] for a, b in pairwise(edges)]
        return span_f1([e.labels for e in examples], cut)

    return score


def _places(examples: Sequence[Example], share: float, is_pooled: bool) -> Callable[[int], Ids]:
    """Return the function from a seed to the rows of the chosen share of examples."""
    strata = strata_of([e.labels for e in examples])
    edges = np.cumsum([0, *(len(e.labels) for e in examples)])

    def places(seed: int) -> Ids:
        chosen = chosen_share(strata, share, seed)
        if is_pooled:
            return np.array(chosen, dtype=np.int64)
        return np.concatenate([np.arange(edges[i], edges[i + 1]) for i in chosen])

    return places


if __name__ == "__main__":
    run_command(main)
