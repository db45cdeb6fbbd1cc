"""The experiment of docs/results.md: `python -m experiments.results --data DIR --work DIR`.

Pretrains a biLM on news, goes on with it on film reviews, and sets heads on the frozen biLMs beside
baselines, by the commands that users have. Some hours on two cores; a run that was stopped goes on
where it was (a stage in the middle of pretraining, too). The page and its pictures come last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bilm.errors import run_command
from experiments.stages import Stages
from experiments.texts import check_data, prepare

MIXES = "trainable,frozen,learned,average,top,layer:0,layer:1"
HEADS = ("attention", "bilstm", "gru")
FILM_STEPS = 2500


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages that are not done, then write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="the texts; see docs/results.md")
    parser.add_argument("--work", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--ranks", type=int, default=2, help="of pretraining (default: 2)")
    parser.add_argument("--until", help="stop after this stage")
    arguments = parser.parse_args(argv)
    check_data(arguments.data)
    Experiment(arguments.data, arguments.work, arguments.ranks, arguments.until).run()
    return 0


class Experiment:
    """All stages, in the order in which they need each other."""

    def __init__(self, data: Path, work: Path, ranks: int, until: str | None) -> None:
        self.data, self.work, self.ranks, self.until = data, work, ranks, until
        self.texts = work / "texts"
        self.stages = Stages(work)

    def run(self) -> None:
        """Do what is not done."""
        if not (self.texts / "done").is_file():
            print("texts", flush=True)
            prepare(self.data, self.texts)
            (self.texts / "done").touch()
        try:
            self._pretrain()
            self._classify_news()
            self._classify_films()
            self._analyse()
        except _Enough:
            return

    def _stage(self, name: str, *command: str | Path) -> None:
        self.stages.run(name, *command)
        if name == self.until:
            raise _Enough

    def _pretrain(self) -> None:
        corpus, run = self.work / "news_corpus", self.work / "news"
        self._build("news", corpus, "--max-vocab", "30000")
        self._train("news", corpus, run)
        self._stage("news_perplexity", *_evaluate(run, corpus))

    def _build(self, name: str, corpus: Path, *flags: str) -> None:
        command = ("python", "-m", "data_tools.build_corpus", "--overwrite", *flags)
        text = self.texts / f"{name}.txt"
        self._stage(f"{name}_corpus", *command, "--input", text, "--output", corpus)

    def _train(self, name: str, corpus: Path, run: Path, *settings: str) -> None:
        self._stage(
            f"{name}_pretraining",
            *("deepspeed", "--quiet", "--num_gpus", str(self.ranks), "launch/pretrain.py"),
            *("--config", "configs/news.json", f"data.corpus={corpus}"),
            *(f"train.output_dir={run}", *settings),
        )

    def _classify_news(self) -> None:
        task = self._task(self.work / "news" / "best", "ag_train.csv", "ag_test.csv")
        self._heads("ag", task, MIXES, "trainable,frozen,learned")

    def _classify_films(self) -> None:
        corpus, run = self.work / "films_corpus", self.work / "films"
        self._build("films", corpus, "--lowercase", "--lines", "documents", "--max-vocab", "30000")
        start = f"train.init_from={self.work / 'news' / 'best'}"
        rates = ("train.optimizer.learning_rate=0.003", f"train.max_steps={FILM_STEPS}")
        self._train("films", corpus, run, start, *rates)
        self._stage("films_perplexity", *_evaluate(run, corpus))
        task = self._task(run / "best", "sst5_train.csv", "sst5_test.csv")
        valid = ("--validation", self.texts / "sst5_dev.csv", "--tokenized")
        self._heads("sst5", (*task, *valid), MIXES, "trainable,frozen,learned")

    def _task(self, model: Path, train: str, test: str) -> tuple[str | Path, ...]:
        flags = ("--model", model, "--train", self.texts / train, "--test", self.texts / test)
        vectors = ("--vectors", self.data / "glove/glove.6B.50d.top60k.txt.gz")
        return (*flags, *vectors, "--cache", self.work / "cache", "--overwrite")

    def _heads(self, name: str, task: Sequence[str | Path], pooled: str, others: str) -> None:
        for head in ("mean_max", *HEADS):
            mixes = pooled if head == "mean_max" else others
            self._stage(
                f"{name}_{head}",
                *("python", "-m", "downstream.classify", *task, "--head", head),
                *("--mix", mixes, "--seeds", "3", "--output", self.work / f"{name}_{head}"),
            )
        self._stage(
            f"{name}_baselines",
            *("python", "-m", "downstream.baselines", *task),
            *("--output", self.work / f"{name}_baselines"),
        )

    def _analyse(self) -> None:
        task = self._task(self.work / "news" / "best", "ag_train.csv", "ag_test.csv")
        for analysis in ("sample_efficiency", "penalty", "layers"):
            output = self.work / analysis
            command = ("python", "-m", f"downstream.analyses.{analysis}", *task)
            self._stage(analysis, *command, "--output", output)


class _Enough(Exception):
    """The stage after which to stop is done."""


def _evaluate(run: Path, corpus: Path) -> tuple[str | Path, ...]:
    return ("python", "launch/evaluate.py", "--model", run, "--corpus", corpus, "--json")


if __name__ == "__main__":
    run_command(main)
