"""The stages of the comparison, in the order in which they depend on each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from experiments.comparison.features import SYSTEM_FILE
from experiments.comparison.page import write_page
from experiments.comparison.systems import PACKAGE, SYSTEMS, Texts, training_commands
from experiments.comparison.tasks import TASKS
from experiments.comparison.trials import (
    TRIAL_SHARE,
    TRIAL_TASKS,
    TRIALS,
    Trial,
    best_trial,
    combined_trial,
    mean_score,
)
from experiments.stages import Stages


@dataclass(frozen=True)
class Options:
    """The flags of the command."""

    data: Path
    work: Path
    minutes: float
    trial_minutes: float
    corpus: Path
    model: Path
    systems: Sequence[str]


class Comparison:
    """Runs stages below a working directory."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._work = options.work
        self._stages = Stages(options.work)

    def text(self) -> None:
        """Write the sentences of the corpus, the examples of the tasks, and the pieces."""
        corpus = ["--corpus", str(self._options.corpus)]
        text = self._work / "text"
        self._stage("text", "text", [*corpus, "--output", str(text)])
        data = ["--data", str(self._options.data)]
        self._stage("tasks", "tasks", [*data, "--output", str(self._work / "tasks")])
        share = ["--share", str(TRIAL_SHARE), "--output", str(self._work / "trial_tasks")]
        self._stage("trial_tasks", "tasks", [*data, *share])
        pieces = [
            *corpus,
            "--text",
            str(text / "train.txt"),
            "--output",
            str(self._work / "pieces"),
        ]
        self._stage("pieces", "pieces", pieces)

    def trials(self) -> None:
        """Run the trials of each system, and write the chosen flags."""
        for system in self._chosen_systems():
            if not TRIALS[system]:
                continue
            trials = list(TRIALS[system])
            scores = {trial.name: self._trial(system, trial) for trial in trials}
            combined = combined_trial(trials, {n: mean_score(s) for n, s in scores.items()})
            if combined is not None:
                trials.append(combined)
                scores[combined.name] = self._trial(system, combined)
            means = {name: mean_score(score) for name, score in scores.items()}
            best = best_trial(trials, means)
            flags = [*best.flags, *self._pooling(system, best, means[best.name])]
            rows = [{"name": t.name, "flags": t.flags, **scores[t.name]} for t in trials]
            tree = {"trials": rows, "chosen": best.name, "flags": flags}
            write_text(self._work / "trials" / f"{system}.json", json.dumps(tree, indent=1) + "\n")

    def train(self) -> None:
        """Train each system for the whole time with the chosen flags."""
        for system in self._chosen_systems():
            flags: list[str] = []
            if TRIALS[system]:
                path = self._work / "trials" / f"{system}.json"
                flags = read_json(path, CheckpointError)["flags"]
            output = self._work / "systems" / system
            self._train(system, system, output, self._options.minutes, flags)

    def others(self) -> None:
        """Describe english-small, the untrained biLM and GloVe."""
        model = ["--model", str(self._options.model)]
        glove = self._options.data / "glove/glove.6B.50d.top60k.txt.gz"
        flags = {
            "english_small": model,
            "untrained": model,
            "glove": ["--vectors", str(glove)],
        }
        for system in sorted(flags.keys() & set(self._options.systems)):
            output = ["--output", str(self._work / "systems" / system)]
            self._stage(system, "other_systems", ["--kind", system, *flags[system], *output])

    def features(self) -> None:
        """Compute the features of every system for every task."""
        for system in self._options.systems:
            for task in TASKS:
                self._cache(system, self._system(system), "tasks", task)

    def heads(self) -> None:
        """Train and score the heads of every system on every task."""
        for system in self._options.systems:
            for task in TASKS:
                self._evaluate(system, self._system(system), "tasks", task)

    def facts(self) -> None:
        """Measure the throughput and the memory of every system."""
        for system in self._options.systems:
            flags = ["--system", str(self._system(system)), "--tasks", str(self._work / "tasks")]
            output = ["--output", str(self._work / "facts" / system)]
            self._stage(f"{system}_facts", "facts", [*flags, *output])

    def page(self) -> None:
        """Write docs/comparison.md and its plot."""
        write_page(self._work, self._options.minutes, corpus=self._options.corpus)

    def _chosen_systems(self) -> list[str]:
        return [s for s in self._options.systems if SYSTEMS[s].is_trained_here]

    def _system(self, system: str) -> Path:
        return self._work / "systems" / system / SYSTEM_FILE

    def _stage(self, name: str, module: str, flags: Sequence[str]) -> None:
        self._stages.run(name, ["python", "-m", f"{PACKAGE}.{module}", *flags])

    def _train(
        self, name: str, system: str, output: Path, minutes: float, flags: Sequence[str]
    ) -> None:
        texts = Texts(self._options.corpus, self._work)
        for command in training_commands(system, texts, output, minutes, flags):
            self._stages.run(f"{name}_training{command.name}", command.words)

    def _trial(self, system: str, trial: Trial) -> dict[str, float]:
        """Train for the short time, and return the validation score of each task."""
        name = f"{system}_trial_{trial.name}"
        output = self._work / "trials" / system / trial.name
        self._train(name, system, output, self._options.trial_minutes, trial.flags)
        return self._trial_scores(name, output / SYSTEM_FILE)

    def _trial_scores(self, name: str, system: Path) -> dict[str, float]:
        scores = {}
        for task in TRIAL_TASKS:
            self._cache(name, system, "trial_tasks", task)
            scores[task] = self._evaluate(name, system, "trial_tasks", task)
        return scores

    def _pooling(self, system: str, best: Trial, mean: float) -> list[str]:
        """Return the flag of the better pooling of pieces, by the features of the best trial."""
        if system != "masked_lm":
            return []
        directory = self._work / "trials" / system / best.name
        tree = read_json(directory / SYSTEM_FILE, CheckpointError)
        tree["settings"]["pooling"] = "first"
        path = directory / "first_piece.json"
        write_text(path, json.dumps(tree, indent=1) + "\n")
        first = mean_score(self._trial_scores("masked_lm_trial_first_piece", path))
        return ["--pooling", "first" if first > mean else "mean"]

    def _cache(self, name: str, system: Path, tasks: str, task: str) -> None:
        flags = ["--system", str(system), "--tasks", str(self._work / tasks), "--task", task]
        flags += ["--output", str(self._work / "features" / name)]
        splits = ["--splits", "train", "validation"] if tasks == "trial_tasks" else []
        self._stage(f"{name}_features_{task}", "cache", [*flags, *splits])

    def _evaluate(self, name: str, system: Path, tasks: str, task: str) -> float:
        """Train and score heads; return the validation score of the last share and seed 0."""
        output = self._work / "scores" / f"{name}_{task}"
        flags = ["--system", str(system), "--tasks", str(self._work / tasks), "--task", task]
        flags += ["--features", str(self._work / "features" / name), "--output", str(output)]
        if tasks == "trial_tasks":
            flags += ["--shares", "1", "--seeds", "1", "--validation-only"]
        self._stage(f"{name}_heads_{task}", "evaluate", flags)
        shares = read_json(output, CheckpointError)["shares"]
        return float(list(shares.values())[-1]["validation"][0])


PARTS: dict[str, Callable[[Comparison], None]] = {
    "text": Comparison.text,
    "trials": Comparison.trials,
    "train": Comparison.train,
    "others": Comparison.others,
    "features": Comparison.features,
    "heads": Comparison.heads,
    "facts": Comparison.facts,
    "page": Comparison.page,
}
