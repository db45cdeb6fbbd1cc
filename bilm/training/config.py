"""The configuration of a run: a JSON file with the sections model, data, train and deepspeed.

Reading is strict: unknown and duplicate keys, wrong types, NaN and values out of range are all
reported in one `ConfigError`, each with its path in the JSON and, for a misspelled key, the closest
valid one. Overrides have the form `section.key=value`. Nothing here imports torch or deepspeed, so
an invalid configuration is rejected in well under a second.

`python -m bilm.commands.config FILE [section.key=value ...]` prints the resolved configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from bilm.corpus.global_batch import RankShare
from bilm.errors import ConfigError
from bilm.files.sections import PositiveInt, Section, parse_section
from bilm.files.strict_json import read_json
from bilm.model.config import ModelConfig
from bilm.model.precision import Precision
from bilm.training.overrides import apply_override
from bilm.training.shipped_configs import find_config

Decay = Annotated[float, Field(ge=0, lt=1)]


class DataConfig(Section):
    """The corpus, and the shape of its batches."""

    corpus: Annotated[str, Field(min_length=1)] = Field(
        description="directory written by data_tools.build_corpus"
    )
    unroll_steps: PositiveInt = Field(
        20,
        description="words per row and step; gradients are truncated there, and LSTM states are "
        "carried over",
    )
    num_workers: Annotated[int, Field(ge=0, le=64)] = Field(
        1, description="threads per rank that prepare batches in advance; 0 for none"
    )


DECAYS_TO_LAST_STEP = ("linear", "cosine")  # their learning rate depends on the number of steps


class OptimizerConfig(Section):
    """The optimizer and its learning rate."""

    name: Literal["adagrad", "adam", "adamw"] = Field(
        "adagrad",
        description="adagrad is the published optimizer; with a sampled softmax, adam "
        "updates only the rows that have a gradient; adamw requires softmax.kind full",
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        0.2, description="the maximum of the schedule; not scaled by the number of ranks"
    )
    initial_accumulator: Annotated[float, Field(ge=0)] = Field(
        1.0, description="initial value of Adagrad's sums of squares"
    )
    epsilon: Annotated[float, Field(ge=0)] = Field(
        0.0, description="added to the root of the sums of squares (for Adam, about 1e-8)"
    )
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="the two decay rates of Adam")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description="weight decay; only for adamw"
    )
    warmup_steps: Annotated[int, Field(ge=0)] = Field(
        0, description="steps over which the learning rate increases linearly from 0"
    )
    decay: Literal["none", "linear", "cosine", "inverse_sqrt"] = Field(
        "none",
        description="decay of the learning rate after the warmup; linear and cosine reach 0 at the "
        "last step",
    )

    @model_validator(mode="after")
    def _check_epsilon_and_weight_decay(self) -> OptimizerConfig:
        if self.name != "adagrad" and self.epsilon == 0:
            raise ValueError(f"epsilon is 0, so {self.name} may divide by zero; set it to 1e-8")
        if self.name != "adamw" and self.weight_decay:
            raise ValueError(f"weight_decay is {self.weight_decay}, but only adamw supports it")
        return self


class EvaluationConfig(Section):
    """Held-out perplexity during training, with the full softmax."""

    every_steps: PositiveInt | None = Field(
        None, description="optimizer steps between evaluations; null for once per epoch"
    )
    rows: PositiveInt = Field(
        32, description="rows that the held-out text is cut into; ranks share them equally"
    )
    max_words: PositiveInt | None = Field(
        200_000,
        description="limit on the words of an evaluation, counting sentence ends; a larger split "
        "is reduced to a fixed subset; null for no limit",
    )
    patience: PositiveInt | None = Field(
        None,
        description="stop after this many evaluations without improvement; null for never",
    )


class CheckpointConfig(Section):
    """Checkpoints, from which an interrupted run resumes."""

    every_steps: PositiveInt = Field(1000, description="optimizer steps between checkpoints")
    keep_last: PositiveInt = Field(
        2, description="number of checkpoints to keep in addition to the best one"
    )
    on_error: Literal["stop", "continue"] = Field(
        "stop",
        description="what to do if a checkpoint cannot be written: stop the run, or log a warning "
        "and continue; a failure of the last one is always an error",
    )


class LogConfig(Section):
    """The logs and how often they are written."""

    every_steps: PositiveInt = Field(100, description="steps between lines of metrics.jsonl")
    histograms_every_steps: PositiveInt | None = Field(
        5000, description="steps between histograms and update ratios; null for never"
    )


class TrainConfig(Section):
    """The run: its directory, length, optimizer, evaluation, checkpoints and logs."""

    output_dir: Annotated[str, Field(min_length=1)] = Field(
        description="directory for the checkpoints, metrics and best model of the run"
    )
    num_epochs: PositiveInt = Field(10, description="number of passes over the training split")
    max_steps: PositiveInt | None = Field(
        None, description="stop after this many optimizer steps; null for all epochs"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0,
        description="determines the initial weights, the text order, the negatives and dropout",
    )
    init_from: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="start from the weights of a run, a model (a directory, or a name such as "
        "english-small), or a directory with options.json and weights.hdf5; words in both "
        "vocabularies keep their softmax rows",
    )
    precision: Precision = Field(
        "float32", description="of products in training (tf32: CUDA only); all else is float32"
    )
    optimizer: OptimizerConfig = OptimizerConfig()
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = Field(
        10.0,
        description="limit on the norm of all gradients, including softmax rows; larger gradients "
        "are scaled down to it; null for no clipping",
    )
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    timeout_seconds: Annotated[int, Field(ge=10)] = Field(
        600,
        description="how long ranks wait for each other in a step, and for heartbeats, before the "
        "run fails",
    )
    startup_timeout_seconds: Annotated[int, Field(ge=10)] = Field(
        1800, description="the same from the start to the first step; includes verifying the corpus"
    )


class ZeroConfig(Section):
    """ZeRO, which partitions the training state across ranks."""

    rejected_keys: ClassVar[dict[str, str]] = {
        "offload_optimizer": "it would need DeepSpeed's CPU optimizers, which clip differently",
        "offload_param": "it is not supported; use more ranks or stage 3",
    }

    stage: Annotated[int, Field(ge=0, le=3)] = Field(
        0, description="0 to 3; 3 only with softmax.kind full, whose gradients are dense"
    )
    overlap_comm: bool | None = Field(None, description="send gradients during the backward pass")
    contiguous_gradients: bool | None = Field(
        None, description="copy gradients to a contiguous buffer"
    )
    reduce_bucket_size: PositiveInt | None = Field(
        None, description="number of elements reduced at once"
    )
    allgather_bucket_size: PositiveInt | None = Field(
        None, description="number of elements gathered at once"
    )
    stage3_param_persistence_threshold: Annotated[int, Field(ge=0)] | None = Field(
        None, description="weights with fewer elements are not partitioned (stage 3)"
    )


JsonObject = dict[str, JsonValue]


class DeepSpeedConfig(Section):
    """The configuration of DeepSpeed. Unknown keys, which DeepSpeed accepts, are rejected."""

    # Keys of DeepSpeed that are not supported, and what to use instead.
    rejected_keys: ClassVar[dict[str, str]] = {
        "train_micro_batch_size_per_gpu": "it is computed from train_batch_size, "
        "gradient_accumulation_steps and the number of ranks",
        "gradient_clipping": "it ignores sparse gradients; set train.max_gradient_norm",
        "optimizer": "set train.optimizer",
        "scheduler": "set train.optimizer",
        "sparse_gradients": "DeepSpeed detects sparse gradients by itself",
        "fp16": "it does not support sparse gradients; set train.precision to 'bfloat16'",
        "bf16": "it would also store the weights in bfloat16; set train.precision to 'bfloat16'",
        "amp": "set train.precision to 'bfloat16'",
        "tensorboard": "every run writes TensorBoard events",
    }

    train_batch_size: PositiveInt = Field(
        description="rows of the global batch, over all ranks; each rank gets an equal part"
    )
    gradient_accumulation_steps: PositiveInt = Field(
        1, description="number of micro-batches into which a rank divides its rows in a step"
    )
    zero_optimization: ZeroConfig = ZeroConfig()
    communication_data_type: Literal["fp32", "bf16"] | None = Field(
        None, description="data type in which gradients are sent; null for their own type"
    )
    prescale_gradients: bool = Field(False, description="divide gradients before the reduction")
    steps_per_print: PositiveInt | None = Field(
        None, description="steps between DeepSpeed's own log lines"
    )
    wall_clock_breakdown: bool = Field(False, description="log DeepSpeed's own timings")
    comms_logger: JsonObject | None = Field(
        None, description="settings of DeepSpeed's communication log"
    )
    flops_profiler: JsonObject | None = Field(None, description="settings of DeepSpeed's profiler")

    @model_validator(mode="after")
    def _check_accumulation(self) -> DeepSpeedConfig:
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
    def _check_sections_together(self) -> Config:
        stage = self.deepspeed.zero_optimization.stage
        if stage == 3 and self.model.softmax.kind == "sampled":
            raise ValueError(
                "deepspeed.zero_optimization.stage is 3, but the sampled softmax has sparse "
                "gradients, which ZeRO stage 3 does not support; set the stage to 0, 1 or 2, or "
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
    """Read a configuration, apply `section.key=value` overrides, and check it.

    `path` is a JSON file, or the name of a shipped configuration, such as "big".
    """
    path = find_config(path)
    tree = read_json(path, ConfigError)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} contains a {type(tree).__name__}; expected a JSON object")
    for override in overrides:
        apply_override(tree, override)
    return parse_section(Config, tree, str(path))
