"""A directory with everything that the page can show: model, text, heads and a run."""

from __future__ import annotations

import json
from pathlib import Path

from downstream.classify import main as classify
from downstream.tag import main as tag
from tests.bilm.embedding.elmo_models import tiny
from tests.downstream.explorer.small_models import write_text
from tests.downstream.order_task import write_csv
from tests.downstream.tag_task import make_tag_place, tag_flags
from tests.downstream.topic_task import topic_texts


def make_page_place(directory: Path) -> list[str]:
    """Write the files, and return the flags of `bilm explore`, besides the model."""
    tiny().save_pretrained(directory / "model")
    text = write_text(directory)
    write_csv(directory / "train.csv", topic_texts(60, 1))
    flags = ["--model", str(directory / "model"), "--train", str(directory / "train.csv")]
    flags += ["--test", str(directory / "train.csv"), "--head", "attention", "--mix", "average"]
    flags += ["--epochs", "1", "--encoder-dim", "8", "--cache", str(directory / "cache")]
    classify([*flags, "--output", str(directory / "report"), "--seeds", "1", "--device", "cpu"])
    (directory / "tagging").mkdir()
    own = make_tag_place(directory / "tagging")
    tag([*tag_flags(own, "report", "--device=cpu"), f"--model={own / 'model'}"])
    (directory / "run").mkdir()
    add_metrics(directory, 1, 50.0)
    add_metrics(directory, 2, 40.0)
    return [
        *("--text", str(text), "--cache", str(directory / "indexes")),
        *("--classifier", str(directory / "report"), "--run", str(directory / "run")),
        *("--tagger", str(directory / "tagging" / "report")),
    ]


def add_metrics(directory: Path, step: int, perplexity: float) -> None:
    """Append the lines of a step, as a run does."""
    train = {
        "event": "train",
        "step": step,
        "loss_forward": 3.0 + 2.0 / step,
        "words_per_second": 100 * step,
    }
    heldout = {"event": "heldout", "step": step, "perplexity": perplexity}
    with open(directory / "run" / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(train) + "\n" + json.dumps(heldout) + "\n")
