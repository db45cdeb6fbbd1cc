"""One JSON file says what is trained, on what, and how: sections model, data, train, deepspeed.

Reading it is strict: unknown and doubled keys, wrong types, NaN and values out of range are all
reported in one `ConfigError`, each with its path in the JSON and, for a misspelt key, the nearest
right one. Overrides come as `section.key=value`. Nothing here imports torch or deepspeed, so a bad
configuration is refused in well under a second.

`python -m bilm.config FILE [section.key=value ...]` prints the resolved configuration.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from bilm.errors import ConfigError, run_command
from bilm.sections import Section, parse_section
from bilm.strict_json import parse_json, read_json

PositiveInt = Annotated[int, Field(ge=1)]
# Far beyond what can be trained; what stands in a file must not decide how much is allocated.
Width = Annotated[int, Field(ge=1, le=1 << 20)]
VocabularySize = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
MAX_LAYERS = 100
Decay = Annotated[float, Field(ge=0, lt=1)]

CONFIG_FILE = "config.json"  # of a run, in its directory


class CharacterConfig(Section):
    """The character CNN that turns a word's bytes into its vector."""

    embedding_dim: Width = Field(description="width of a character's embedding")
    filters: Annotated[
        tuple[tuple[Width, Width], ...], Field(min_length=1, max_length=MAX_LAYERS)
    ] = Field(description="the convolutions, as [width, count] pairs")
    num_highway: Annotated[int, Field(ge=0, le=MAX_LAYERS)] = Field(
        description="highway layers after the convolutions"
    )
    activation: Literal["relu", "tanh"] = Field(
        "relu", description="applied after the maximum over positions"
    )
    max_characters: Annotated[int, Field(ge=3, le=(1 << 15) - 1)] = Field(
        50, description="ids per word, both word borders included; longer words are cut"
    )

    @property
    def num_filters(self) -> int:
        """The width of all convolutions together."""
        return sum(count for _, count in self.filters)

    @model_validator(mode="after")
    def _filters_fit(self) -> CharacterConfig:
        widest = max(width for width, _ in self.filters)
        if widest > self.max_characters:
            raise ValueError(
                f"filters has one of width {widest}, wider than the word: "
                f"max_characters is {self.max_characters}"
            )
        return self


class LstmConfig(Section):
    """The stacked LSTMs, one stack per direction."""

    dim: Width = Field(description="units (the width of the cell state)")
    projection_dim: Width = Field(
        description="width of the output and of a word's vector; equal to dim means no projection"
    )
    num_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = Field(
        description="layers per direction"
    )
    cell_clip: Annotated[float, Field(gt=0)] | None = Field(
        3.0, description="the cell state is clipped to plus and minus this; null for no clipping"
    )
    projection_clip: Annotated[float, Field(gt=0)] | None = Field(
        3.0, description="likewise for the projected output; without a projection it does nothing"
    )
    skip_connections: bool = Field(
        True, description="from the second layer on, add a layer's input to its output"
    )

    @model_validator(mode="after")
    def _projects_down(self) -> LstmConfig:
        if self.projection_dim > self.dim:
            raise ValueError(
                f"projection_dim is {self.projection_dim}, above dim {self.dim}; "
                "it must be smaller, or equal for no projection"
            )
        return self


class SoftmaxConfig(Section):
    """The softmax over the vocabulary, shared by both directions."""

    kind: Literal["sampled", "full"] = Field(
        "sampled", description="what training computes; evaluation is always full"
    )
    num_negatives: PositiveInt = Field(
        8192, description="distinct negatives per step and direction, when sampled"
    )
    shared_negatives: bool = Field(
        False, description="draw one set of negatives for both directions (the original draws two)"
    )
    tied_to_input: bool = Field(
        False, description="use the word embeddings as softmax weights; only without characters"
    )


class ModelConfig(Section):
    """What the biLM computes. The size of the vocabulary belongs to the corpus."""

    characters: CharacterConfig | None = Field(
        description="the character CNN; null for embeddings of word ids instead"
    )
    lstm: LstmConfig
    softmax: SoftmaxConfig = Field(default_factory=lambda: SoftmaxConfig())
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="share of each layer's inputs and of the top output set to zero"
    )
    bidirectional: bool = Field(True, description="false trains the forward direction only")

    @property
    def num_directions(self) -> int:
        """How many stacks of LSTMs there are."""
        return 2 if self.bidirectional else 1

    @model_validator(mode="after")
    def _tying_needs_word_ids(self) -> ModelConfig:
        if self.softmax.tied_to_input and self.characters is not None:
            raise ValueError(
                "softmax.tied_to_input is true, but the input is characters, which have no word "
                "embeddings to tie; set it to false, or model.characters to null"
            )
        return self


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
        if self.train_batch_size % self.gradient_accumulation_steps:
            raise ValueError(
                f"train_batch_size is {self.train_batch_size}, which "
                f"gradient_accumulation_steps {self.gradient_accumulation_steps} does not divide"
            )
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


def main() -> int:
    """Check a configuration and print it with all defaults filled in."""
    parser = argparse.ArgumentParser(prog="python -m bilm.config", description=main.__doc__)
    parser.add_argument("file", type=Path, help="a configuration, for example configs/big.json")
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_args()
    config = load_config(arguments.file, arguments.override)
    sys.stdout.write(config.model_dump_json(indent=2) + "\n")
    return 0


if __name__ == "__main__":
    run_command(main)
