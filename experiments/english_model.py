"""Train the model `english-small` and export it: `python -m experiments.english_model --data DIR`.

Prepares the text, builds the corpus, trains for more than an hour on two cores, measures the
perplexity of each source, and writes the model directory with its card. Every stage is one of the
documented commands; run it again after an interruption to resume.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.errors import run_command
from bilm.files.writing import write_text
from experiments.english_card import card_details
from experiments.english_text import SOURCES, check_open_text, prepare_english
from experiments.stages import Stages

CONFIG = "configs/english_small.json"

MAX_VOCABULARY = "30000"

EVALUATED_WORDS = 20_000  # of each source

PRECISION = "train.precision=bfloat16"  # faster on processors with AVX512-BF16


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages that are not done."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.english_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="directory with open_text/; see docs/results.md"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("results/english"), help="directory for all output"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("models/english-small"), help="the model directory"
    )
    parser.add_argument(
        "--only-corpus", action="store_true", help="stop when the corpus of the trials is complete"
    )
    arguments = parser.parse_args(argv)
    check_open_text(arguments.data)
    model = EnglishModel(arguments.data, arguments.work)
    model.build_corpus()
    if not arguments.only_corpus:
        model.train()
        model.export(arguments.output)
    return 0


class EnglishModel:
    """The stages, in order."""

    def __init__(self, data: Path, work: Path) -> None:
        self.data, self.work = data, work
        self.text, self.corpus, self.run = work / "text", work / "corpus", work / "run"
        self.stages = Stages(work)

    def build_corpus(self) -> None:
        """Prepare the text, and build the corpus."""
        done = self.text / "done"
        if not done.is_file():
            prepare_english(self.data, self.text)
            write_text(done, "")
        heldout = str(self.text / "heldout/*.txt")
        command = ["python", "-m", "data_tools.build_corpus", "--overwrite"]
        command += ["--lines", "documents", "--max-vocab", MAX_VOCABULARY]
        command += ["--input", str(self.text / "train/*.txt"), "--input", heldout]
        command += ["--heldout", heldout, "--output", str(self.corpus)]
        self.stages.run("corpus", command)

    def train(self) -> None:
        """Train, or resume training."""
        command = ["deepspeed", "--quiet", "--num_gpus", "1", "launch/pretrain.py"]
        command += ["--config", CONFIG, f"data.corpus={self.corpus}", PRECISION]
        self.stages.run("pretraining", [*command, f"train.output_dir={self.run}"])

    def export(self, output: Path) -> None:
        """Evaluate every source, and write the model directory with its card."""
        evaluation = [self._evaluate("all sources", self.corpus, "heldout")]
        for source in SOURCES:
            corpus = self.work / "heldout" / source
            command = ["python", "-m", "data_tools.build_shards", "--lines", "documents"]
            command += ["--input", str(self.text / "heldout" / f"{source}.txt"), "--heldout", "0"]
            command += ["--vocab", str(self.corpus / "vocab.txt"), "--overwrite"]
            self.stages.run(f"corpus_{source}", [*command, "--output", str(corpus)])
            evaluation.append(self._evaluate(source, corpus, "train"))
        card = self.work / "card.json"
        write_text(card, json.dumps(card_details(self.data, evaluation), indent=1) + "\n")
        command = ["python", "launch/export.py", str(self.run), "--model", str(output)]
        command += ["--dtype", "float16", "--card", str(card), "--overwrite"]
        self.stages.run("export", command)

    def _evaluate(self, name: str, corpus: Path, split: str) -> dict[str, Any]:
        command = ["python", "launch/evaluate.py", "--model", str(self.run)]
        command += ["--corpus", str(corpus), "--split", split, "--rows", "8", "--json"]
        if split == "train":
            command += ["--max-words", str(EVALUATED_WORDS)]
        done = self.stages.run(f"perplexity_{name.replace(' ', '_')}", command)
        return {"name": name, **json.loads(done.output)}


if __name__ == "__main__":
    run_command(main)
