"""bilm/training/run_models."""

from __future__ import annotations

from pathlib import Path

from bilm.corpus.reader import Corpus
from bilm.errors import CheckpointError
from bilm.pretrained.model_directory import BEST_MODEL_DIRECTORY, PretrainedBiLm
from bilm.training.checkpoints import WEIGHTS, CheckpointStore
from bilm.training.config import CONFIG_FILE, load_config


def model_of_run(run: Path, which: str) -> PretrainedBiLm:
    """The best model of a run, or that of its newest whole checkpoint."""
    if which == "best":
        if not (run / BEST_MODEL_DIRECTORY).is_dir():
            raise CheckpointError(
                f"{run} has no best model yet: no held-out evaluation has been done; "
                "--which newest takes the newest checkpoint"
            )
        return PretrainedBiLm.from_pretrained(run / BEST_MODEL_DIRECTORY)
    checkpoint = CheckpointStore(run / "checkpoints").newest()
    if checkpoint is None:
        raise CheckpointError(f"{run} holds no checkpoint")
    config = load_config(run / CONFIG_FILE)
    corpus = Corpus.open(config.data.corpus)
    if corpus.fingerprint != checkpoint.run.get("corpus"):
        raise CheckpointError(f"{corpus.path} is not the corpus that {run} was trained on")
    names = checkpoint.names(WEIGHTS)
    return PretrainedBiLm.from_weights(
        config.model,
        {name: checkpoint.tensor(WEIGHTS, name) for name in names},
        corpus.vocabulary,
        corpus.tokenizer(),
        f"the weights in {checkpoint.path / WEIGHTS}.safetensors",
    )
