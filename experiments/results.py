"""Run the experiment of docs/results.md: `python -m experiments.results --data DIR --work DIR`.

Pretrains a biLM on news, continues its training on film reviews, and compares heads on the frozen
biLMs with baselines. Every stage is one of the documented commands. The command
takes several hours on two cores. Run it again after an interruption to resume, even in the middle
of pretraining. At the end it writes the page and its plots.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from bilm.errors import ConfigError, run_command
from bilm.files.writing import write_text
from experiments.english_results import DOMAINS, EnglishResults
from experiments.prepare_texts import check_data, prepare
from experiments.results_page import write_page
from experiments.stages import Stages

ALL_MIXES = "trainable,frozen,learned,average,top,layer:0,layer:1"

MIXES = "trainable,frozen,learned"

WORDS = ("play", "bank")


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages that are not done, then write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="directory of the texts; see docs/results.md"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("results"),
        help="directory for all output of the stages (default: results)",
    )
    parser.add_argument(
        "--ranks", type=int, default=2, help="number of ranks in pretraining (default: 2)"
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        default=list(PARTS),
        choices=list(PARTS),
        help="parts to run (default: all, in this order: %(choices)s)",
    )
    arguments = parser.parse_args(argv)
    check_data(arguments.data)
    experiment = Experiment(arguments.data, arguments.work, arguments.ranks)
    for part in arguments.parts:
        PARTS[part](experiment)
    return 0


class Experiment:
    """All stages, in the order in which they depend on each other."""

    def __init__(self, data: Path, work: Path, ranks: int) -> None:
        self.data, self.work, self.ranks = data, work, ranks
        self.texts = work / "texts"
        self.stages = Stages(work)
        self.news, self.films = work / "news", work / "films"
        self.vectors = ["--vectors", str(data / "glove/glove.6B.50d.top60k.txt.gz")]
        self.ag_news = self._task(self.news, "ag_train.csv", "ag_test.csv")
        self.sst5 = self._task(self.films, "sst5_train.csv", "sst5_test.csv")
        self.sst5 += ["--validation", str(self.texts / "sst5_dev.csv"), "--tokenized"]

    def prepare(self) -> None:
        """Prepare the texts."""
        done, source = self.texts / "done", str(self.data.resolve())
        if not done.is_file():
            print("texts", flush=True)
            prepare(self.data, self.texts)
            write_text(done, source)
        if done.read_text(encoding="utf-8") != source:
            raise ConfigError(
                f"{self.work} was made from {done.read_text(encoding='utf-8')}, not from {source}; "
                "choose another --work"
            )

    def pretrain(self) -> None:
        """Pretrain the news biLM."""
        self._build("news", self.work / "news_corpus")
        self._train("news", self.work / "news_corpus", self.news)

    def pretrain_films(self) -> None:
        """Continue the training of the news biLM on film reviews."""
        corpus = self.work / "films_corpus"
        self._build("films", corpus, ["--lowercase", "--lines", "documents"])
        settings = [
            f"train.init_from={self.news / 'best'}",
            "train.optimizer.learning_rate=0.003",
            "train.num_epochs=1",
        ]
        self._train("films", corpus, self.films, settings)

    def pooled_heads(self) -> None:
        """Train pooled heads on AG News: all mixes, with and without word vectors."""
        self._heads("ag_mean_max", self.ag_news, "mean_max", ALL_MIXES, self.vectors)
        self._heads("ag_mean_max_alone", self.ag_news, "mean_max", MIXES)

    def word_heads(self) -> None:
        """Train heads that read every word on AG News."""
        training = ["--batch-size", "128", "--learning-rate", "0.003", *self.vectors]
        brief = ["--epochs", "3", *training]
        for mix in ("learned", "trainable", "frozen"):
            self._heads(f"ag_attention_{mix}", self.ag_news, "attention", mix, brief)
        for head in ("bilstm", "gru"):
            flags = ["--encoder-dim", "64", *brief]
            self._heads(f"ag_{head}", self.ag_news, head, "trainable", flags)
        flags = ["--encoder-dim", "128", "--epochs", "4", *training]
        self._heads("ag_bilstm_learned", self.ag_news, "bilstm", "learned", flags)

    def baselines(self) -> None:
        """Score the baselines on both tasks."""
        for name, task in (("ag", self.ag_news), ("sst5", self.sst5)):
            command = ["python", "-m", "downstream.baselines", *task, *self.vectors]
            output = ["--output", str(self.work / f"{name}_baselines")]
            self.stages.run(f"{name}_baselines", command + output)

    def film_heads(self) -> None:
        """Train all heads on SST-5."""
        for head in ("mean_max", "attention"):
            self._heads(f"sst5_{head}", self.sst5, head, MIXES, self.vectors)
        for head in ("bilstm", "gru"):
            self._heads(f"sst5_{head}", self.sst5, head, "trainable", self.vectors)

    def analyses(self) -> None:
        """Run all analyses with the news biLM."""
        treebank = self.data / "ud_english_ewt"
        model = ["--model", str(self.news / "best"), "--overwrite"]
        train = ["--train", str(treebank / "train.conllu.gz")]
        test = ["--test", str(treebank / "test.conllu.gz")]
        self._analyse("probe", "probe", model + train + test)
        text = ["--text", str(self.texts / "ag_train.csv"), "--label-column", "label"]
        for word in WORDS:
            self._analyse(f"neighbours_{word}", "neighbours", [*model, *text, "--word", word])
        for analysis in ("sample_efficiency", "penalty", "layers"):
            self._analyse(analysis, analysis, [*self.ag_news, "--epochs", "5"])

    def english(self) -> None:
        """Train heads on english-small, and on its adaptations to both domains."""
        english = EnglishResults(self.data, self.work)
        for task in DOMAINS:
            english.frozen_heads(task)
            english.adapt(task)
            english.adapted_heads(task)

    def page(self) -> None:
        """Write docs/results.md and its plots."""
        write_page(self.work)

    def _build(self, name: str, corpus: Path, flags: Sequence[str] = ()) -> None:
        command = ["python", "-m", "data_tools.build_corpus", "--overwrite"]
        command += ["--max-vocab", "30000", *flags]
        command += ["--input", str(self.texts / f"{name}.txt"), "--output", str(corpus)]
        self.stages.run(f"{name}_corpus", command)

    def _train(self, name: str, corpus: Path, run: Path, settings: Sequence[str] = ()) -> None:
        command = ["deepspeed", "--quiet", "--num_gpus", str(self.ranks), "launch/pretrain.py"]
        command += ["--config", "configs/news.json", f"data.corpus={corpus}"]
        command += [f"train.output_dir={run}", *settings]
        self.stages.run(f"{name}_pretraining", command)
        command = ["python", "launch/evaluate.py", "--model", str(run), "--corpus", str(corpus)]
        self.stages.run(f"{name}_perplexity", [*command, "--json"])

    def _task(self, run: Path, train: str, test: str) -> list[str]:
        flags = ["--model", str(run / "best")]
        flags += ["--train", str(self.texts / train), "--test", str(self.texts / test)]
        return [*flags, "--cache", str(self.work / "cache"), "--overwrite"]

    def _heads(
        self, name: str, task: Sequence[str], head: str, mixes: str, flags: Sequence[str] = ()
    ) -> None:
        command = ["python", "-m", "downstream.classify", *task, "--head", head, "--mix", mixes]
        command += ["--seeds", "3", *flags, "--output", str(self.work / name)]
        self.stages.run(name, command)

    def _analyse(self, name: str, analysis: str, flags: Sequence[str]) -> None:
        command = ["python", "-m", f"downstream.analyses.{analysis}", *flags]
        self.stages.run(name, [*command, "--output", str(self.work / name)])


PARTS: dict[str, Callable[[Experiment], None]] = {
    "texts": Experiment.prepare,
    "pretrain": Experiment.pretrain,
    "pretrain-films": Experiment.pretrain_films,
    "pooled-heads": Experiment.pooled_heads,
    "baselines": Experiment.baselines,
    "word-heads": Experiment.word_heads,
    "film-heads": Experiment.film_heads,
    "analyses": Experiment.analyses,
    "english": Experiment.english,
    "page": Experiment.page,
}


if __name__ == "__main__":
    run_command(main)
