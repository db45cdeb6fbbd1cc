"""Compare settings of `english-small` by short runs of equal time: `python -m experiments.english_trials`.

Each trial measures the speed of its settings, trains for the steps that fit into the time on two
cores, and reports held-out perplexity and the quality of frozen features: the part-of-speech accuracy
of linear probes, and the accuracy of a pooled head on SST-5.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import run_command
from bilm.files.writing import write_text
from experiments.stages import Stages

SPEED_STEPS = 80

CONFIG = "configs/english_small.json"


@dataclass(frozen=True)
class Trial:
    """The settings of a trial that differ from the configuration."""

    name: str
    settings: tuple[str, ...]
    rows: int = 128  # of the batch


def _size(dim: int, projection: int) -> tuple[str, ...]:
    return (f"model.lstm.dim={dim}", f"model.lstm.projection_dim={projection}")


TRIALS = (
    Trial("512/128", _size(512, 128)),
    Trial("1024/128", _size(1024, 128)),
    Trial("768/192", _size(768, 192)),
    Trial("768/192, learning rate 0.008", (*_size(768, 192), "train.optimizer.learning_rate=0.008")),
    Trial("768/192, learning rate 0.002", (*_size(768, 192), "train.optimizer.learning_rate=0.002")),
    Trial("768/192, no dropout", (*_size(768, 192), "model.dropout=0.0")),
    Trial("768/192, 64 rows", _size(768, 192), rows=64),
    Trial(
        "768/192, Adagrad 0.2",
        (
            *_size(768, 192),
            "train.optimizer.name=adagrad",
            "train.optimizer.learning_rate=0.2",
            "train.optimizer.warmup_steps=0",
            "train.optimizer.decay=none",
        ),
    ),
)


@dataclass(frozen=True)
class Result:
    """The figures of a trial."""

    name: str
    words_per_second: float
    steps: int
    words: int
    perplexity: float
    probes: dict[str, float]
    sst5: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run all trials that are not done, and print their table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.english_trials",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="directory of the task data")
    parser.add_argument("--work", type=Path, default=Path("results/english"))
    parser.add_argument("--minutes", type=float, default=3.0, help="training time of each trial")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the trials to run, from 0")
    arguments = parser.parse_args(argv)
    runner = Runner(arguments.data, arguments.work, 60 * arguments.minutes)
    trials = [TRIALS[i] for i in arguments.only] if arguments.only else TRIALS
    results = [runner.run(trial) for trial in trials]
    print(table(results))
    return 0


class Runner:
    """Runs trials below a working directory."""

    def __init__(self, data: Path, work: Path, seconds: float) -> None:
        self._data, self._work, self._seconds = data, work, seconds
        self._stages = Stages(work / "trials")

    def run(self, trial: Trial) -> Result:
        """Measure the speed of the settings, train, and evaluate."""
        name = re.sub(r"\W+", "_", trial.name)
        words_per_second = self._speed(trial, name)
        words_per_step = trial.rows * 20
        steps = int(self._seconds * words_per_second / words_per_step)
        run = self._train(trial, name, steps)
        model, corpus = str(run / "best"), str(self._work / "corpus")
        command = ["python", "launch/evaluate.py", "--model", model, "--corpus", corpus, "--json"]
        perplexity = json.loads(self._stages.run(f"{name}_perplexity", command).output)
        treebank = self._data / "ud_english_ewt"
        probe = ["python", "-m", "downstream.analyses.probe", "--model", model, "--overwrite"]
        probe += ["--train", str(treebank / "dev.conllu.gz")]
        probe += ["--test", str(treebank / "test.conllu.gz"), "--output", str(run / "probe")]
        probes = self._stages.run(f"{name}_probe", probe).output
        return Result(
            trial.name,
            words_per_second,
            steps,
            steps * words_per_step,
            perplexity["perplexity"],
            _accuracies(probes),
            self._sst5(name, model),
        )

    def _speed(self, trial: Trial, name: str) -> float:
        run = self._train(trial, f"{name}_speed", SPEED_STEPS, ["train.evaluation.max_words=2000"])
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        speeds = [json.loads(line).get("words_per_second") for line in lines]
        return float([speed for speed in speeds if speed][-1])

    def _train(self, trial: Trial, name: str, steps: int, settings: Sequence[str] = ()) -> Path:
        run = self._work / "trials" / name
        command = ["deepspeed", "--quiet", "--num_gpus", "1", "launch/pretrain.py"]
        command += ["--config", CONFIG, f"data.corpus={self._work / 'corpus'}"]
        command += [f"train.output_dir={run}", f"train.max_steps={steps}"]
        command += [f"deepspeed.train_batch_size={trial.rows}", "train.log.every_steps=40"]
        self._stages.run(name, [*command, *trial.settings, *settings])
        return run

    def _sst5(self, name: str, model: str) -> float:
        texts = self._work.parent / "texts"
        command = ["python", "-m", "downstream.classify", "--model", model, "--head", "mean_max"]
        command += ["--train", str(texts / "sst5_train.csv"), "--test", str(texts / "sst5_dev.csv")]
        command += ["--tokenized", "--seeds", "3", "--overwrite"]
        command += ["--output", str(self._work / "trials" / f"{name}_sst5")]
        output = self._stages.run(f"{name}_sst5", command).output
        return _accuracies(output)["trainable"]


def _accuracies(output: str) -> dict[str, float]:
    """Return the first number of each row of a Markdown table, by the first cell."""
    rows = re.findall(r"^\| *([^|]+?) *\|[^|]*?(\d+\.\d+)", output, flags=re.MULTILINE)
    return {name: float(value) for name, value in rows}


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| settings | words/s | steps | words | perplexity | probes | SST-5 |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for r in results:
        probes = ", ".join(f"{value:.2f}" for value in r.probes.values())
        lines.append(
            f"| {r.name} | {r.words_per_second:,.0f} | {r.steps:,} | {r.words:,} "
            f"| {r.perplexity:.1f} | {probes} | {r.sst5:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(main)
