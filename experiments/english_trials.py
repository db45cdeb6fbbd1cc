"""Compare settings of `english-small` by short runs of equal time.

`python -m experiments.english_trials --data DIR` measures the speed of each trial, trains
for the steps that fit into the time on two cores, and reports held-out perplexity and the quality
of frozen features: the part-of-speech accuracy of linear probes, and the accuracy of a pooled head
on SST-5.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import run_command
from experiments.english_model import PRECISION
from experiments.stages import Stages

SPEED_STEPS = 80

EVALUATED_WORDS = 20_000

CONFIG = "configs/english_small.json"


@dataclass(frozen=True)
class Trial:
    """A size, the rows of a batch, and the settings that differ from the configuration."""

    units: int
    projection: int
    rows: int = 128
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The size, and all other differences from the configuration."""
        sections = r"^(model|train\.optimizer)\."
        settings = (re.sub(sections, "", setting) for setting in self.settings)
        return ", ".join((f"{self.units}/{self.projection}", f"{self.rows} rows", *settings))

    @property
    def size_settings(self) -> list[str]:
        """The settings on which the speed depends."""
        return [
            f"model.lstm.dim={self.units}",
            f"model.lstm.projection_dim={self.projection}",
            f"deepspeed.train_batch_size={self.rows}",
        ]


_ADAGRAD = (
    "train.optimizer.name=adagrad",
    "train.optimizer.learning_rate=0.2",
    "train.optimizer.warmup_steps=0",
    "train.optimizer.decay=none",
)

TRIALS = (
    Trial(512, 128),
    Trial(1024, 128),
    Trial(768, 192),
    Trial(768, 192, settings=("train.optimizer.learning_rate=0.008",)),
    Trial(768, 192, settings=_ADAGRAD),
    Trial(768, 192, rows=64),
    Trial(768, 192, settings=("model.dropout=0.0",)),
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
    parser.add_argument("--minutes", type=float, default=1.25, help="training time of each trial")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the trials to run, from 0")
    parser.add_argument("--speeds", action="store_true", help="only measure the speeds")
    arguments = parser.parse_args(argv)
    runner = Runner(arguments.data, arguments.work, 60 * arguments.minutes)
    trials = [TRIALS[i] for i in arguments.only] if arguments.only else TRIALS
    for trial in trials:  # first, so that all speeds are measured on the same quiet machine
        runner.speed(trial)
    if arguments.speeds:
        return 0
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
        words_per_second = self.speed(trial)
        words_per_step = trial.rows * 20
        steps = int(self._seconds * words_per_second / words_per_step)
        run = self._train(trial, name, steps)
        model, corpus = str(run / "best"), str(self._work / "corpus")
        command = ["python", "launch/evaluate.py", "--model", model, "--corpus", corpus, "--json"]
        command += ["--max-words", str(EVALUATED_WORDS)]
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

    def speed(self, trial: Trial) -> float:
        """Return the words per second of the size of a trial."""
        name = f"speed_{trial.units}_{trial.projection}_{trial.rows}"
        bare = Trial(trial.units, trial.projection, trial.rows)
        run = self._train(bare, name, SPEED_STEPS, ["train.evaluation.max_words=2000"])
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        speeds = [json.loads(line).get("words_per_second") for line in lines]
        return max(float(speed) for speed in speeds if speed)

    def _train(self, trial: Trial, name: str, steps: int, settings: Sequence[str] = ()) -> Path:
        run = self._work / "trials" / name
        command = ["deepspeed", "--quiet", "--num_gpus", "1", "launch/pretrain.py"]
        command += ["--config", CONFIG, f"data.corpus={self._work / 'corpus'}"]
        command += [f"train.output_dir={run}", f"train.max_steps={steps}"]
        command.append(f"train.optimizer.warmup_steps={steps // 10}")
        command += ["train.log.every_steps=40", PRECISION, *trial.size_settings]
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
