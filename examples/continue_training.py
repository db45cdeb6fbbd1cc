"""Continue the training of english-small on your own text: `python examples/continue_training.py`

Builds a corpus from text files (by default, the pages in docs/ of this repository), trains for a
few steps from the weights of english-small, and prints the held-out perplexity before and after.
Then `Embedder.from_pretrained("runs/domain")` loads the result.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import bilm

DOCS = str(Path(__file__).resolve().parents[1] / "docs" / "*.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", default=DOCS, help="pattern of text files (default: docs/*.md)")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="directory for all output")
    parser.add_argument("--steps", type=int, default=60, help="training steps (default: 60)")
    arguments = parser.parse_args()

    corpus, run = arguments.work / "domain_corpus", arguments.work / "domain"
    command = [sys.executable, "-m", "data_tools.build_corpus", "--format", "text"]
    command += ["--input", arguments.text, "--lines", "documents", "--heldout", "0.1"]
    command += ["--min-count", "2", "--output", str(corpus), "--overwrite"]
    subprocess.run(command, check=True)

    settings = [
        f"data.corpus={corpus}",
        f"train.output_dir={run}",
        "train.init_from=english-small",
        f"train.max_steps={arguments.steps}",
        "train.num_epochs=50",
        "train.optimizer.learning_rate=0.001",
        "train.optimizer.warmup_steps=5",
        f"train.evaluation.every_steps={arguments.steps}",
        "deepspeed.train_batch_size=16",
    ]
    config = bilm.load_config("english_small", settings)
    first = bilm.train(bilm.load_config("english_small", [*settings, "train.max_steps=1"]))
    print(f"held-out perplexity after 1 step: {first.best_perplexity:.1f}")
    result = bilm.train(config, allow_changes=True)  # resumes the run
    print(f"after {result.step} steps: {result.best_perplexity:.1f}; model: {result.best_model}")


if __name__ == "__main__":
    main()
