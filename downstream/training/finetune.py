"""`--finetune`: train the biLM as a language model on the task's training texts, then freeze it.

Fine-tuning runs the project's own commands: `data_tools.build_shards` builds a corpus of the texts
with the model's vocabulary and tokenizer, `bilm.commands.pretrain` trains with `train.init_from`,
and `bilm.commands.evaluate` measures the perplexity on held-out texts before and after. Validation
and test texts are not read.

Cost: one training run over the texts. The result is kept in the cache directory under the digests
of model, texts and settings, and reused; an interrupted run resumes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilm.embedding.embedder import Embedder
from bilm.errors import DIVERGED_EXIT_CODE, CheckpointError, ConfigError, DivergedError, OutputError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import is_disk_full, write_text
from bilm.model.devices import choose_device
from bilm.pretrained.digests import model_digest
from bilm.pretrained.locations import locate
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import SENTENCEPIECE_FILE, require_tokenizer
from downstream.features.store import check_cache
from downstream.settings.sections import Settings
from downstream.tasks.text_task import TextTask
from downstream.training.experiment import check_heads

logger = logging.getLogger(__name__)

_EVALUATION_ROWS = 8

_RESULT_FILE = "finetuned.json"


class _Result(Section):
    """The content of finetuned.json."""

    perplexity_before: float
    perplexity_after: float


@dataclass(frozen=True)
class FineTuned:
    """The fine-tuned model, and its perplexity on held-out texts of the task before and after."""

    model: Path
    perplexity_before: float
    perplexity_after: float

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {**asdict(self), "model": str(self.model)}


def finetune(settings: Settings, task: TextTask) -> FineTuned:
    """Train the model of `settings` on the training texts of `task`, unless it is in the cache."""
    check_cache(settings.cache_dir)
    model = locate(settings.model).name
    source = PretrainedBiLm.open(model)
    if source.model.softmax is None or source.vocabulary is None:
        raise CheckpointError(
            f"{settings.model} has no softmax or no vocabulary, so it cannot be trained as a "
            "language model; remove --finetune, or export the model with its softmax"
        )
    embedder = Embedder(source, device="cpu")
    check_heads(settings, task, embedder.num_layers, embedder.dim)
    texts = [" ".join(text.split()) for text in task.texts("train")]
    place = settings.cache_dir.resolve() / f"finetuned-{_key(settings, source, texts)}"
    path = place / _RESULT_FILE
    if not path.exists():
        try:
            _train(place, settings, model, source, texts)
        except OSError as e:
            if not is_disk_full(e):
                raise
            raise OutputError(f"--finetune cannot write {place}: {e.strerror}") from None
    result = parse_section(_Result, read_json(path, CheckpointError), str(path), CheckpointError)
    logger.info(
        "fine-tuning: held-out perplexity %.2f before, %.2f after",
        result.perplexity_before,
        result.perplexity_after,
    )
    return FineTuned(place / "run" / "best", result.perplexity_before, result.perplexity_after)


def _key(settings: Settings, source: PretrainedBiLm, texts: Sequence[str]) -> str:
    """Return a digest of everything that determines the result, including the softmax."""
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
    place: Path, settings: Settings, model: str, source: PretrainedBiLm, texts: Sequence[str]
) -> None:
    corpus, run = place / "corpus", place / "run"
    if not corpus.exists():
        _build_corpus(place, settings, source, texts)
    before = _perplexity(settings, model, corpus)
    path = place / "config.json"
    config = {
        "model": source.model.config.model_dump(mode="json"),
        "data": {"corpus": str(corpus)},
        "train": {
            "output_dir": str(run),
            "init_from": model,
            "num_epochs": settings.finetune.epochs,
            "seed": settings.train.seed,
            "optimizer": {"learning_rate": settings.finetune.learning_rate},
            "evaluation": {"rows": _EVALUATION_ROWS},
        },
        "deepspeed": {"train_batch_size": settings.finetune.batch_size},
    }
    write_text(path, json.dumps(config, indent=2) + "\n")
    _run(settings, "training", ["bilm.commands.pretrain", "--config", str(path)])
    after = _perplexity(settings, str(run / "best"), corpus)
    result = _Result(perplexity_before=before, perplexity_after=after)
    write_text(place / _RESULT_FILE, result.model_dump_json() + "\n")


def _build_corpus(
    place: Path, settings: Settings, source: PretrainedBiLm, texts: Sequence[str]
) -> None:
    assert source.vocabulary is not None
    write_text(place / "texts.txt", "".join(f"{text}\n" for text in texts))
    source.vocabulary.write(place / "vocab.txt")
    command = [
        "data_tools.build_shards",
        "--vocab",
        str(place / "vocab.txt"),
        "--allow-unsorted-vocab",
        "--input",
        str(place / "texts.txt"),
        "--output",
        str(place / "corpus"),
        "--heldout",
        str(settings.finetune.heldout_share),
        "--seed",
        str(settings.train.seed),
    ]
    _run(settings, "building the corpus", command + _tokenizer_flags(settings, source, place))


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


def _perplexity(settings: Settings, model: str, corpus: Path) -> float:
    command = [
        "bilm.commands.evaluate",
        "--json",
        "--model",
        model,
        "--corpus",
        str(corpus),
        "--rows",
        str(_EVALUATION_ROWS),
    ]
    output = _run(settings, "measuring perplexity", command)
    # Libraries may print before the result, which is the last line.
    return float(json.loads(output.strip().splitlines()[-1])["perplexity"])


def _run(settings: Settings, stage: str, command: list[str]) -> str:
    """Run a command, given by its module and flags; return its output.

    Its log goes to stderr. Pretraining and evaluation run as one rank and choose a free port.
    """
    logger.info("fine-tuning: %s", stage)
    # The child finds the same packages as this process.
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if choose_device(settings.device).type == "cpu":
        variables["DS_ACCELERATOR"] = "cpu"
    process = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        error = DivergedError if process.returncode == DIVERGED_EXIT_CODE else ConfigError
        raise error(
            f"--finetune: {stage} failed with exit code {process.returncode}; see the message "
            f"above. The command was: python -m {' '.join(command)}"
        )
    return process.stdout
