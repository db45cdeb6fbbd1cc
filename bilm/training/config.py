"""One JSON file says what is trained, on what, and how: sections model, data, train, deepspeed.

Reading it is strict: unknown and doubled keys, wrong types, NaN and values out of range are all
reported in one `ConfigError`, each with its path in the JSON and, for a misspelt key, the nearest
right one. Overrides come as `section.key=value`. Nothing here imports torch or deepspeed, so a bad
configuration is refused in well under a second.

`python -m bilm.commands.config FILE [section.key=value ...]` prints the resolved configuration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from bilm.corpus.global_batch import RankShare
from bilm.errors import ConfigError
from bilm.files.sections import PositiveInt, Section, parse_section
from bilm.files.strict_json import parse_json, read_json
from bilm.model.config import ModelConfig

Decay = Annotated[float, Field(ge=0, lt=1)]

CONFIG_FILE = "config.json"  # of a run, in its directory


class DataConfig(Section):
    """What is read, and in what shape."""

    corpus: Annotated[str, Field(min_length=1)] = Field(
        description="directory made by data_tools.build_corpus"
    )
    unroll_steps: PositiveInt = Field(
        20, description="words per row and step; gradients stop at its border, states do not"
    )
    num_workers: Annotated[int, Field(ge=0, le=64)] = Field(
        1, description="threads per rank that prepare batches ahead; 0 for none"
    )


class OptimizerConfig(Section):
    """How a gradient becomes a step."""

    name: Literal["adagrad", "adam", "adamw"] = Field(
        "adagrad",
        description="adagrad is the published one; adam is lazy on the rows of a sampled softmax; "
        "adamw needs softmax.kind full",
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        0.2, description="the highest of the schedule; not scaled by the number of ranks"
    )
    initial_accumulator: Annotated[float, Field(ge=0)] = Field(
        1.0, description="what Adagrad's sum of squares starts from"
    )
    epsilon: Annotated[float, Field(ge=0)] = Field(
        0.0, description="added to the root of that sum (Adam wants 1e-8 or so)"
    )
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="the two decays of Adam")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="for adamw")
    warmup_steps: Annotated[int, Field(ge=0)] = Field(
        0, description="steps over which the learning rate rises from 0, linearly"
    )
    decay: Literal["none", "linear", "cosine", "inverse_sqrt"] = Field(
        "none", description="how it falls afterwards; linear and cosine reach 0 at the last step"
    )

    @model_validator(mode="after")
    def _adam_divides_by_no_zero(self) -> OptimizerConfig:
        if self.name != "adagrad" and self.epsilon == 0:
            raise ValueError(f"epsilon is 0, by which {self.name} may divide; set it to 1e-8")
        if self.name != "adamw" and self.weight_decay:
            raise ValueError(f"weight_decay is {self.weight_decay}, but only adamw has it")
        return self


class EvaluationConfig(Section):
    """Held-out perplexity while training, by the full softmax."""

    every_steps: PositiveInt | None = Field(
        None, description="optimiser steps between evaluations; null for once an epoch"
    )
    rows: PositiveInt = Field(
        32, description="rows that the held-out text is cut into; ranks share them equally"
    )
    patience: PositiveInt | None = Field(
        None, description="stop after so many evaluations without a better one; null for never"
    )


class CheckpointConfig(Section):
    """What a killed run goes on from."""

    every_steps: PositiveInt = Field(1000, description="optimiser steps between checkpoints")
    keep_last: PositiveInt = Field(2, description="kept besides the best one")


class LogConfig(Section):
    """What is written down, and how often."""

    every_steps: PositiveInt = Field(100, description="steps that a line of metrics.jsonl sums up")
    histograms_every_steps: PositiveInt | None = Field(
        5000, description="steps between histograms and update ratios; null for never"
    )


class TrainConfig(Section):
    """The run."""

    output_dir: Annotated[str, Field(min_length=1)] = Field(
        description="where the run keeps its checkpoints, metrics and exported model"
    )
    num_epochs: PositiveInt = Field(10, description="times that every word is read")
    max_steps: PositiveInt | None = Field(
        None, description="stop after so many optimiser steps; null for all epochs"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="decides weights, order of reading, negatives and dropout"
    )
    init_from: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="start from the weights of a run, a model directory, or a directory with "
        "options.json and weights.hdf5; words that both vocabularies have keep their softmax rows",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="type of the products; weights, cells and sums stay float32"
    )
    optimizer: OptimizerConfig = Field(default_factory=lambda: OptimizerConfig())
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = Field(
        10.0,
        description="one norm over all gradients, softmax rows included; larger ones are scaled "
        "down to it; null for no clipping",
    )
    evaluation: EvaluationConfig = Field(default_factory=lambda: EvaluationConfig())
    checkpoints: CheckpointConfig = Field(default_factory=lambda: CheckpointConfig())
    log: LogConfig = Field(default_factory=lambda: LogConfig())
    timeout_seconds: Annotated[int, Field(ge=10)] = Field(
        1800, description="how long ranks wait for one another before the run ends with an error"
    )


class ZeroConfig(Section):
    """ZeRO: what is partitioned over ranks."""

    refused_keys: ClassVar[dict[str, str]] = {
        "offload_optimizer": "it would need DeepSpeed's own CPU optimisers, which clip otherwise",
        "offload_param": "it is not supported; use more ranks, or stage 3",
    }

    stage: Annotated[int, Field(ge=0, le=3)] = Field(
        0, description="0 to 3; above 0 only with softmax.kind full (sparse gradients need 0)"
    )
    overlap_comm: bool | None = Field(None, description="send gradients while computing others")
    contiguous_gradients: bool | None = Field(None, description="copy gradients to one buffer")
    reduce_bucket_size: PositiveInt | None = Field(None, description="elements sent at once")
    allgather_bucket_size: PositiveInt | None = Field(None, description="elements fetched at once")
    stage3_param_persistence_threshold: Annotated[int, Field(ge=0)] | None = Field(
        None, description="weights smaller than this stay whole on every rank (stage 3)"
    )


JsonObject = dict[str, JsonValue]


class DeepSpeedConfig(Section):
    """What is handed to DeepSpeed. Its top-level keys are listed here, since it accepts typos."""

    # What users of DeepSpeed will reach for, and why it is not here.
    refused_keys: ClassVar[dict[str, str]] = {
        "train_micro_batch_size_per_gpu": "it follows from train_batch_size, "
        "gradient_accumulation_steps and the number of ranks",
        "gradient_clipping": "it misses sparse gradients; set train.max_gradient_norm",
        "optimizer": "set train.optimizer",
        "scheduler": "set train.optimizer",
        "sparse_gradients": "DeepSpeed sees sparse gradients by itself",
        "fp16": "it does not reach sparse gradients; set train.precision to 'bfloat16'",
        "bf16": "it would keep the weights in bfloat16 too; set train.precision to 'bfloat16'",
        "amp": "set train.precision to 'bfloat16'",
        "tensorboard": "every run writes TensorBoard events by itself",
    }

    train_batch_size: PositiveInt = Field(
        description="rows of the global batch, over all ranks; each rank takes an equal part"
    )
    gradient_accumulation_steps: PositiveInt = Field(
        1, description="parts in which a rank computes its rows before one optimiser step"
    )
    zero_optimization: ZeroConfig = Field(default_factory=lambda: ZeroConfig())
    communication_data_type: Literal["fp32", "bf16"] | None = Field(
        None, description="type in which gradients are sent; null for their own"
    )
    prescale_gradients: bool = Field(False, description="divide gradients before they are reduced")
    steps_per_print: PositiveInt | None = Field(None, description="DeepSpeed's own log lines")
    wall_clock_breakdown: bool = Field(False, description="DeepSpeed's own timings")
    comms_logger: JsonObject | None = Field(None, description="DeepSpeed's log of communication")
    flops_profiler: JsonObject | None = Field(None, description="DeepSpeed's profiler")

    @model_validator(mode="after")
    def _parts_are_equal(self) -> DeepSpeedConfig:
        share = RankShare(accumulation=self.gradient_accumulation_steps)
        try:
            share.rows_per_batch(self.train_batch_size, "train_batch_size")
        except ConfigError as e:
            raise ValueError(str(e)) from None
        return self


class Config(Section):
    """The whole configuration of a run."""

    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    deepspeed: DeepSpeedConfig

    @model_validator(mode="after")
    def _sections_agree(self) -> Config:
        stage = self.deepspeed.zero_optimization.stage
        if stage > 0 and self.model.softmax.kind == "sampled":
            raise ValueError(
                f"deepspeed.zero_optimization.stage is {stage}, but the sampled softmax has sparse "
                "gradients, which ZeRO stages 1 to 3 refuse; set the stage to 0, or "
                "model.softmax.kind to 'full'"
            )
        if self.train.optimizer.name == "adamw" and self.model.softmax.kind == "sampled":
            raise ValueError(
                "train.optimizer.name is 'adamw', which decays all weights at every step, but the "
                "sampled softmax has sparse gradients; set it to 'adagrad' or 'adam', or "
                "model.softmax.kind to 'full'"
            )
        return self


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """Read the configuration at `path`, apply `section.key=value` overrides, check it all."""
    tree = read_json(Path(path), ConfigError)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds a {type(tree).__name__}; a JSON object is expected")
    for override in overrides:
        _apply_override(tree, override)
    return parse_section(Config, tree, str(path))


def _apply_override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(
            f"the override {override!r} is not of the form section.key=value, "
            "for example train.seed=1"
        )
    node: Any = tree
    for key in keys[:-1]:
        node = node.setdefault(key, {}) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ConfigError(f"the override {override!r} goes through something that is no object")
    node[keys[-1]] = _override_value(text, override)


def _override_value(text: str, override: str) -> Any:
    """A JSON value if it reads as one, else the text itself (so that paths need no quotes)."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # a number of thousands of digits is a plain ValueError
        return text
    return parse_json(text, f"the override {override!r}", ConfigError)
