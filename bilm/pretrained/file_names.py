"""The names of the files of a model, and the types in which its weights can be stored."""

from __future__ import annotations

from typing import Literal

CONFIG_FILE = "config.json"

WEIGHTS_FILE = "model.safetensors"

VOCABULARY_FILE = "vocab.txt"

CARD_FILE = "README.md"  # the name that hubs show

OPTIONS_FILE, PUBLISHED_WEIGHTS_FILE = "options.json", "weights.hdf5"

NLPL_WEIGHTS_FILE = "model.hdf5"  # the name of the weights in the NLPL repository

# The parts of a run directory that `PretrainedBiLm.open` recognizes.
BEST_MODEL_DIRECTORY, CHECKPOINTS_DIRECTORY = "best", "checkpoints"

METRICS_FILE = "metrics.jsonl"  # of a run

WeightType = Literal["float32", "float16"]
