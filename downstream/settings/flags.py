"""Flags and logging of the commands that train heads."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError
from bilm.extras import require
from bilm.files.sections import parse_section
from bilm.files.strict_json import read_json
from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision
from downstream.settings.common import TaskSettings
from downstream.settings.sections import Settings
from downstream.settings.unused_flags import reject_unused

AnySettings = TypeVar("AnySettings", bound=TaskSettings)


def names(text: str) -> list[str]:
    """Split a list separated by commas."""
    return [name.strip() for name in text.split(",")]


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _threshold(text: str) -> float | str:
    """Return a number, or the text, which the settings check."""
    try:
        return float(text)
    except ValueError:
        return text


class Flag(NamedTuple):
    """A flag, and the path of its setting."""

    flag: str
    path: str
    parse: Callable[[str], Any] | None = str  # None: a boolean flag


class FlagSet(NamedTuple):
    """The flags of a command, and the settings that they belong to."""

    section: type[TaskSettings]
    flags: tuple[Flag, ...]


# The flags of all tasks, in the order of `--help`. A task adds its own flags between them.
OUTPUT_FLAGS = (
    Flag("--model", "model"),
    Flag("--train", "data.train"),
    Flag("--test", "data.test"),
    Flag("--output", "output"),
    Flag("--overwrite", "overwrite", None),
    Flag("--cache", "cache"),
    Flag("--device", "device"),
    Flag("--precision", "precision"),
)
VALIDATION_FLAGS = (
    Flag("--validation", "data.validation"),
    Flag("--validation-share", "data.validation_share", float),
)
TABLE_FLAGS = (
    Flag("--label-column", "data.label_column"),
    Flag("--format", "data.format"),
    Flag("--header", "data.header", None),
    Flag("--tokenized", "data.tokenized", None),
    Flag("--max-words", "data.max_words", int),
)
_TARGET_FLAGS = (
    Flag("--long-texts", "data.long_texts"),
    Flag("--target", "target.kind"),
    Flag("--label-separator", "target.separator"),
    Flag("--threshold", "target.threshold", _threshold),
)
MIX_FLAGS = (
    Flag("--mix", "mix.kinds", names),
    Flag("--mix-weights", "mix.weights", _numbers),
    Flag("--gamma", "mix.gamma", float),
    Flag("--penalty", "mix.penalty", float),
    Flag("--layer-norm", "mix.layer_norm", None),
    Flag("--mix-dropout", "mix.dropout", float),
    Flag("--mix-dim", "mix.dim", int),
    Flag("--mix-learning-rate", "mix.learning_rate", float),
)
_CLASSIFY_HEAD = (
    Flag("--head", "head.kind"),
    Flag("--hidden-dim", "head.hidden_dim", int),
    Flag("--encoder-dim", "head.encoder_dim", int),
    Flag("--dropout", "head.dropout", float),
)
VECTOR_FLAGS = (
    Flag("--vectors", "head.vectors"),
    Flag("--unknown", "head.unknown"),
    Flag("--elmo-at", "head.elmo_at"),
)
CHARACTER_FLAGS = (
    Flag("--characters", "head.characters", None),
    Flag("--character-filters", "head.character_filters", int),
)
TRAINING_FLAGS = (
    Flag("--seed", "train.seed", int),
    Flag("--seeds", "train.num_seeds", int),
    Flag("--train-share", "train.share", float),
    Flag("--epochs", "train.epochs", int),
    Flag("--min-steps", "train.min_steps", int),
    Flag("--patience", "train.patience", int),
    Flag("--batch-size", "train.batch_size", int),
    Flag("--learning-rate", "train.learning_rate", float),
    Flag("--weight-decay", "train.weight_decay", float),
)
_FINETUNE = (
    Flag("--finetune", "finetune.enabled", None),
    Flag("--finetune-epochs", "finetune.epochs", int),
    Flag("--finetune-learning-rate", "finetune.learning_rate", float),
    Flag("--finetune-batch-size", "finetune.batch_size", int),
    Flag("--finetune-heldout", "finetune.heldout_share", float),
)

CLASSIFY_FLAGS = FlagSet(
    Settings,
    (
        *OUTPUT_FLAGS,
        *VALIDATION_FLAGS,
        Flag("--text-columns", "data.text_columns", names),
        *TABLE_FLAGS,
        *_TARGET_FLAGS,
        *MIX_FLAGS,
        *_CLASSIFY_HEAD,
        *VECTOR_FLAGS,
        *TRAINING_FLAGS,
        *_FINETUNE,
    ),
)


def add_flags(parser: argparse.ArgumentParser, flags: FlagSet = CLASSIFY_FLAGS) -> None:
    """Add a flag for every setting, and `--config`."""
    parser.add_argument("--config", type=Path, help="JSON file with settings; flags override it")
    for flag, path, parse in flags.flags:
        field = _field(flags.section, path)
        options: dict[str, Any] = {"help": _help(field), "dest": path, "default": None}
        if parse is None:
            options["action"] = argparse.BooleanOptionalAction
        elif parse is names and flag == "--mix":
            options.update(type=parse, action="extend", metavar="KIND[,KIND]")
        else:
            options.update(type=parse, metavar=flag.removeprefix("--").upper().replace("-", "_"))
        parser.add_argument(flag, **options)


def read_settings(
    arguments: argparse.Namespace, section: type[AnySettings], flags: FlagSet = CLASSIFY_FLAGS
) -> AnySettings:
    """Return the settings of `--config`, overridden by the flags, as a checked `section`.

    Errors name the flags that were passed; without `--config`, they name the flag of any setting.
    """
    tree: Any = {}
    source = "the flags"
    if arguments.config is not None:
        tree, source = read_json(arguments.config, ConfigError), str(arguments.config)
        if not isinstance(tree, dict):
            raise ConfigError(f"{source} contains a {type(tree).__name__}; expected a JSON object")
    passed = {path: flag for flag, path, _ in flags.flags if getattr(arguments, path) is not None}
    for path, flag in passed.items():
        *sections, key = path.split(".")
        node = tree
        for name in sections:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{source}: {name} is not an object, so {flag} cannot be set")
        node[key] = getattr(arguments, path)
    names = passed
    if arguments.config is None:
        names = {path: flag for flag, path, _ in flags.flags}
        tree.setdefault("data", {})  # so that the flags of missing files are named
    settings = parse_section(section, tree, source, names=names)
    reject_unused(settings, passed)
    return settings


def _field(section: Any, path: str) -> Any:
    *names, key = path.split(".")
    for name in names:
        section = section.model_fields[name].annotation
    return section.model_fields[key]


def _help(field: Any) -> str:
    text: str = field.description
    default = field.get_default()
    if field.is_required() or default is None or isinstance(default, bool):
        return text.replace("%", "%%")
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text} (default: {shown})".replace("%", "%%")


def parse(
    description: str | None,
    argv: Sequence[str] | None,
    add_own: Callable[[argparse.ArgumentParser], object] | None = None,
    flags: FlagSet = CLASSIFY_FLAGS,
) -> argparse.Namespace:
    """Parse the flags of all settings, `--progress`, and the flags that `add_own` adds."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if add_own is not None:
        add_own(parser)
    add_flags(parser, flags)
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show progress bars on stderr (default: if it is a terminal)",
    )
    return parser.parse_args(argv)


def model_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags of every analysis of a model that trains no heads."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True, help="a run, a model, or its name")
    parser.add_argument("--output", type=Path, required=True, help="directory of the report")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing report")
    parser.add_argument("--device", default=AUTO, help=DEVICE_HELP)
    parser.add_argument(
        "--precision", choices=get_args(Precision), default="float32", help=PRECISION_HELP
    )
    return parser


def set_up_analysis(*packages: str) -> None:
    """Check the packages, log to stderr, and limit the threads to this process's share of cores."""
    require("this analysis", *packages)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()


def set_up() -> None:
    """Check the packages, log to stderr, and limit the threads to this process's share of cores."""
    require("training heads", "sklearn", "scipy", "matplotlib")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("gensim").setLevel(logging.WARNING)  # it logs every second
    share_cores()
