"""The experiment of docs/results.md: `python -m experiments.results --data DIR --work DIR`.

Pretrains a biLM on news, goes on with it on film reviews, and sets heads on the frozen biLMs beside
baselines, by the commands that users have. Some hours on two cores; a run that was stopped goes on
where it was (a stage in the middle of pretraining, too). The page and its pictures come last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bilm.errors import ConfigError, run_command
from bilm.files.writing import write_text
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
    parser.add_argument("--data", type=Path, required=True, help="the texts; see docs/results.md")
    parser.add_argument("--work", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--ranks", type=int, default=2, help="of pretraining (default: 2)")
    parser.add_argument(
        "--parts",
        nargs="+",
        default=list(PARTS),
        choices=list(PARTS),
        help="which parts to run (default: all, in this order: %(choices)s)",
    )
    arguments = parser.parse_args(argv)
    check_data(arguments.data)
    experiment = Experiment(arguments.data, arguments.work, arguments.ranks)
    for part in arguments.parts:
        PARTS[part](experiment)
    return 0


class Experiment:
    """All stages, in the order in which they need each other."""

    def __init__(self, data: Path, work: Path, ranks: int) -> None:
        self.data, self.work, self.ranks = data, work, ranks
        self.texts = work / "texts"
        self.stages = Stages(work)
        self.news, self.films = work / "news", work / "films"
        self.vectors = ("--vectors", data / "glove/glove.6B.50d.top60k.txt.gz")
        self.ag_news = self._task(self.news, "ag_train.csv", "ag_test.csv")
        self.sst5 = (
            *self._task(self.films, "sst5_train.csv", "sst5_test.csv"),
            *("--validation", self.texts / "sst5_dev.csv", "--tokenized"),
        )

    def pretrain(self) -> None:
        """Texts, corpora, the biLM of news, and that of films which starts from it."""
        done, source = self.texts / "done", str(self.data.resolve())
        if not done.is_file():
            print("texts", flush=True)
            prepare(self.data, self.texts)
            write_text(done, source)
        if done.read_text(encoding="utf-8") != source:
            raise ConfigError(
                f"{self.work} holds what was made of {done.read_text(encoding='utf-8')}, not of "
                f"{source}; give another --work"
            )
        self._build("news", self.work / "news_corpus")
        self._train("news", self.work / "news_corpus", self.news)

    def pretrain_films(self) -> None:
        """The biLM of news goes on with film reviews."""
        corpus = self.work / "films_corpus"
        self._build("films", corpus, "--lowercase", "--lines", "documents")
        start = (f"train.init_from={self.news / 'best'}", "train.optimizer.learning_rate=0.003")
        self._train("films", corpus, self.films, *start, "train.num_epochs=1")

    def pooled_heads(self) -> None:
        """AG News by pooled layers: all mixes, with and without word vectors beside them."""
        self._heads("ag_mean_max", self.ag_news, "mean_max", ALL_MIXES, *self.vectors)
        self._heads("ag_mean_max_alone", self.ag_news, "mean_max", MIXES)

    def word_heads(self) -> None:
        """AG News by heads that read every word."""
        brief = ("--epochs", "3", "--batch-size", "128", "--learning-rate", "0.003", *self.vectors)
        for mix in ("learned", "trainable", "frozen"):
            self._heads(f"ag_attention_{mix}", self.ag_news, "attention", mix, *brief)
        for head in ("bilstm", "gru"):
            small = ("--encoder-dim", "64")
            self._heads(f"ag_{head}", self.ag_news, head, "trainable", *small, *brief)
        large = ("--encoder-dim", "128", "--epochs", "4", *brief[2:])
        self._heads("ag_bilstm_learned", self.ag_news, "bilstm", "learned", *large)

    def baselines(self) -> None:
        """What has to be beaten."""
        for name, task in (("ag", self.ag_news), ("sst5", self.sst5)):
            self.stages.run(
                f"{name}_baselines",
                *("python", "-m", "downstream.baselines", *task, *self.vectors),
                *("--output", self.work / f"{name}_baselines"),
            )

    def film_heads(self) -> None:
        """SST-5 by all heads."""
        for head in ("mean_max", "attention"):
            self._heads(f"sst5_{head}", self.sst5, head, MIXES, *self.vectors)
        for head in ("bilstm", "gru"):
            self._heads(f"sst5_{head}", self.sst5, head, "trainable", *self.vectors)

    def analyses(self) -> None:
        """Parts of speech, words in context, sample efficiency, the penalty, layers."""
        treebank = self.data / "ud_english_ewt"
        model = ("--model", self.news / "best", "--overwrite")
        files = ("--train", treebank / "train.conllu.gz", "--test", treebank / "test.conllu.gz")
        self._analyse("probe", "probe", *model, *files)
        text = ("--text", self.texts / "ag_train.csv", "--label-column", "label")
        for word in WORDS:
            self._analyse(f"neighbours_{word}", "neighbours", *model, *text, "--word", word)
        for analysis in ("sample_efficiency", "penalty", "layers"):
            self._analyse(analysis, analysis, *self.ag_news, "--epochs", "5")

    def page(self) -> None:
        """docs/results.md and its pictures."""
        write_page(self.work)

    def _build(self, name: str, corpus: Path, *flags: str) -> None:
        self.stages.run(
            f"{name}_corpus",
            *("python", "-m", "data_tools.build_corpus", "--overwrite", "--max-vocab", "30000"),
            *flags,
            *("--input", str(self.texts / f"{name}.txt"), "--output", str(corpus)),
        )

    def _train(self, name: str, corpus: Path, run: Path, *settings: str) -> None:
        self.stages.run(
            f"{name}_pretraining",
            *("deepspeed", "--quiet", "--num_gpus", str(self.ranks), "launch/pretrain.py"),
            *("--config", "configs/news.json", f"data.corpus={corpus}"),
            *(f"train.output_dir={run}", *settings),
        )
        self.stages.run(
            f"{name}_perplexity",
            *("python", "launch/evaluate.py", "--model", run, "--corpus", corpus, "--json"),
        )

    def _task(self, run: Path, train: str, test: str) -> tuple[str | Path, ...]:
        files = ("--train", self.texts / train, "--test", self.texts / test)
        return ("--model", run / "best", *files, "--cache", self.work / "cache", "--overwrite")

    def _heads(
        self, name: str, task: Sequence[str | Path], head: str, mixes: str, *flags: str | Path
    ) -> None:
        self.stages.run(
            name,
            *("python", "-m", "downstream.classify", *task, "--head", head, "--mix", mixes),
            *("--seeds", "3", *flags, "--output", self.work / name),
        )

    def _analyse(self, name: str, analysis: str, *flags: str | Path) -> None:
        command = ("python", "-m", f"downstream.analyses.{analysis}", *flags)
        self.stages.run(name, *command, "--output", self.work / name)


PARTS: dict[str, Callable[[Experiment], None]] = {
    "pretrain": Experiment.pretrain,
    "pretrain-films": Experiment.pretrain_films,
    "pooled-heads": Experiment.pooled_heads,
    "baselines": Experiment.baselines,
    "word-heads": Experiment.word_heads,
    "film-heads": Experiment.film_heads,
    "analyses": Experiment.analyses,
    "page": Experiment.page,
}


if __name__ == "__main__":
    run_command(main)
