"""`--finetune`: the biLM goes on as a language model on the task's training texts, then freezes.

This is the real training, run by the project's own commands: a corpus of the texts with the model's
own vocabulary and tokeniser (`data_tools.build_shards`), `launch/pretrain.py` with
`train.init_from`, and `launch/evaluate.py` before and after, on a share of the texts held out.
Neither validation nor test texts are read.

Cost: that of training over the texts. What is made is kept beside the representations under the
digests of model, texts and settings, and used again; an interrupted run goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilm.errors import DIVERGED_EXIT_CODE, CheckpointError, ConfigError, DivergedError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import SENTENCEPIECE_FILE, require_tokenizer
from downstream.settings.sections import Settings
from downstream.tasks.classification import Task

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]

_EVALUATION_ROWS = 8

_RESULT_FILE = "finetuned.json"


class _Result(Section):
    """What finetuned.json holds."""

    perplexity_before: float
    perplexity_after: float


@dataclass(frozen=True)
class FineTuned:
    """The new model, and its held-out perplexity on the task's text before and after."""

    model: Path
    perplexity_before: float
    perplexity_after: float

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return {**asdict(self), "model": str(self.model)}


def finetune(settings: Settings, task: Task) -> FineTuned:
    """Train the model of `settings` on the training texts of `task`, or find that done already."""
    if not (_ROOT / "launch" / "pretrain.py").is_file():
        raise ConfigError(
            f"--finetune needs launch/pretrain.py, which is not at {_ROOT}; run it from a checkout"
        )
    model = Path(settings.model).resolve()  # the commands run elsewhere
    source = PretrainedBiLm.open(model)
    if source.model.softmax is None or source.vocabulary is None:
        raise CheckpointError(
            f"{settings.model} has no softmax or no vocabulary, so it cannot go on as a language "
            "model; leave --finetune out, or export the model with its softmax"
        )
    file, indices = task.indices["train"]
    texts = [" ".join(task.files[file].texts[i].split()) for i in indices]
    place = settings.cache_dir.resolve() / f"finetuned-{_key(settings, source, texts)}"
    result = place / _RESULT_FILE
    if not result.exists():
        _train(place, settings, model, source, texts)
    found = parse_section(_Result, read_json(result, CheckpointError), str(result), CheckpointError)
    logger.info(
        "fine-tuning: held-out perplexity %.2f before, %.2f after",
        *(found.perplexity_before, found.perplexity_after),
    )
    return FineTuned(place / "run" / "best", found.perplexity_before, found.perplexity_after)


def _key(settings: Settings, source: PretrainedBiLm, texts: Sequence[str]) -> str:
    """What decides the result: the model with its softmax, texts, and how long and how fast."""
    assert source.model.softmax is not None
    assert source.vocabulary is not None
    chosen = settings.finetune.model_dump_json() + str(settings.data.tokenized)
    shape = source.model.config.model_dump_json()
    parts = (model_digest(source), settings.train.seed, chosen, shape)
    digest = hashlib.sha256(" ".join(map(str, parts)).encode())
    for parameter in source.model.softmax.parameters():
        digest.update(parameter.detach().cpu().numpy().data)
    for line in (*source.vocabulary.words, *texts):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()[:16]


def _train(
    place: Path, settings: Settings, model: Path, source: PretrainedBiLm, texts: Sequence[str]
) -> None:
    corpus, run = place / "corpus", place / "run"
    if not corpus.exists():
        _build_corpus(place, settings, source, texts)
    before = _perplexity(model, corpus)
    config = place / "config.json"
    write_text(config, json.dumps(_config(settings, model, source, corpus, run), indent=2) + "\n")
    _run(
        [
            *(str(Path(sys.executable).parent / "deepspeed"), "--num_gpus", "1"),
            *("--master_port", str(_free_port()), str(_ROOT / "launch" / "pretrain.py")),
            *("--config", str(config)),
        ],
        "the training",
    )
    after = _perplexity(run / "best", corpus)
    figures = {"perplexity_before": before, "perplexity_after": after}
    write_text(place / _RESULT_FILE, json.dumps(figures) + "\n")


def _build_corpus(
    place: Path, settings: Settings, source: PretrainedBiLm, texts: Sequence[str]
) -> None:
    assert source.vocabulary is not None
    write_text(place / "texts.txt", "".join(f"{text}\n" for text in texts))
    source.vocabulary.write(place / "vocab.txt")
    _run(
        [
            *(sys.executable, "-m", "data_tools.build_shards"),
            *("--vocab", str(place / "vocab.txt"), "--allow-unsorted-vocab"),
            *("--input", str(place / "texts.txt"), "--output", str(place / "corpus")),
            *("--heldout", str(settings.finetune.heldout_share)),
            *("--seed", str(settings.train.seed)),
            *_tokenizer_flags(settings, source, place),
        ],
        "building the corpus",
    )


def _tokenizer_flags(settings: Settings, source: PretrainedBiLm, place: Path) -> list[str]:
    if settings.data.tokenized:
        return ["--tokenizer", "whitespace"]
    remedy = "tokenize the texts, separate words by spaces, and pass --tokenized"
    tokenizer = require_tokenizer(source.tokenizer, remedy, settings.model)
    spec = tokenizer.spec
    flags = ["--tokenizer", spec.name]
    if spec.lowercase:
        flags.append("--lowercase")
    if spec.language is not None:
        flags += ["--language", spec.language]
    if spec.name == "sentencepiece":
        tokenizer.save(place)
        flags += ["--sentencepiece-model", str(place / SENTENCEPIECE_FILE)]
    return flags


def _config(
    settings: Settings, model: Path, source: PretrainedBiLm, corpus: Path, run: Path
) -> dict[str, Any]:
    """The configuration of the run: the model's own shape, Adagrad, a look at each epoch's end."""
    chosen = settings.finetune
    return {
        "model": source.model.config.model_dump(mode="json"),
        "data": {"corpus": str(corpus)},
        "train": {
            "output_dir": str(run),
            "init_from": str(model),
            "num_epochs": chosen.epochs,
            "seed": settings.train.seed,
            "optimizer": {"learning_rate": chosen.learning_rate},
            "evaluation": {"rows": _EVALUATION_ROWS},
        },
        "deepspeed": {"train_batch_size": chosen.batch_size},
    }


def _perplexity(model: Path, corpus: Path) -> float:
    output = _run(
        [
            *(sys.executable, str(_ROOT / "launch" / "evaluate.py"), "--json"),
            *("--model", str(model), "--corpus", str(corpus), "--rows", str(_EVALUATION_ROWS)),
        ],
        "measuring perplexity",
    )
    # Libraries may print before it; our figure is the last line.
    return float(json.loads(output.strip().splitlines()[-1])["perplexity"])


def _run(command: list[str], what: str) -> str:
    """Run one of the project's commands; its log goes to our stderr, its output is returned."""
    logger.info("fine-tuning: %s", what)
    try:
        done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError(f"--finetune: {command[0]} is not there; install deepspeed") from None
    if done.returncode != 0:
        error = DivergedError if done.returncode == DIVERGED_EXIT_CODE else ConfigError
        raise error(
            f"--finetune: {what} ended with exit code {done.returncode}, for the reason above; the "
            f"command was: {' '.join(command)}"
        )
    return done.stdout


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
