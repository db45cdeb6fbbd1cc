"""Flags and logging of the commands that train heads."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError
from bilm.extras import require
from bilm.files.sections import parse_section
from bilm.files.strict_json import read_json
from downstream.settings.sections import BaselineSettings, Settings

AnySettings = TypeVar("AnySettings", bound=BaselineSettings)


def names(text: str) -> list[str]:
    """Split a list separated by commas."""
    return [name.strip() for name in text.split(",")]


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


class _Flag(NamedTuple):
    flag: str
    path: str
    parse: Callable[[str], Any] | None = str  # None: a boolean flag


_FLAGS = (
    _Flag("--model", "model"),
    _Flag("--train", "data.train"),
    _Flag("--test", "data.test"),
    _Flag("--output", "output"),
    _Flag("--overwrite", "overwrite", None),
    _Flag("--cache", "cache"),
    _Flag("--device", "device"),
    _Flag("--precision", "precision"),
    _Flag("--validation", "data.validation"),
    _Flag("--validation-share", "data.validation_share", float),
    _Flag("--label-column", "data.label_column"),
    _Flag("--text-columns", "data.text_columns", names),
    _Flag("--format", "data.format"),
    _Flag("--header", "data.header", None),
    _Flag("--tokenized", "data.tokenized", None),
    _Flag("--max-words", "data.max_words", int),
    _Flag("--mix", "mix.kinds", names),
    _Flag("--mix-weights", "mix.weights", _numbers),
    _Flag("--gamma", "mix.gamma", float),
    _Flag("--penalty", "mix.penalty", float),
    _Flag("--layer-norm", "mix.layer_norm", None),
    _Flag("--mix-dropout", "mix.dropout", float),
    _Flag("--mix-dim", "mix.dim", int),
    _Flag("--mix-learning-rate", "mix.learning_rate", float),
    _Flag("--head", "head.kind"),
    _Flag("--hidden-dim", "head.hidden_dim", int),
    _Flag("--encoder-dim", "head.encoder_dim", int),
    _Flag("--dropout", "head.dropout", float),
    _Flag("--vectors", "head.vectors"),
    _Flag("--unknown", "head.unknown"),
    _Flag("--elmo-at", "head.elmo_at"),
    _Flag("--seed", "train.seed", int),
    _Flag("--seeds", "train.num_seeds", int),
    _Flag("--epochs", "train.epochs", int),
    _Flag("--patience", "train.patience", int),
    _Flag("--batch-size", "train.batch_size", int),
    _Flag("--learning-rate", "train.learning_rate", float),
    _Flag("--weight-decay", "train.weight_decay", float),
    _Flag("--finetune", "finetune.enabled", None),
    _Flag("--finetune-epochs", "finetune.epochs", int),
    _Flag("--finetune-learning-rate", "finetune.learning_rate", float),
    _Flag("--finetune-batch-size", "finetune.batch_size", int),
    _Flag("--finetune-heldout", "finetune.heldout_share", float),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, and `--config`."""
    parser.add_argument("--config", type=Path, help="JSON file with settings; flags override it")
    for flag, path, parse in _FLAGS:
        field = _field(path)
        options: dict[str, Any] = {"help": _help(field), "dest": path, "default": None}
        if parse is None:
            options["action"] = argparse.BooleanOptionalAction
        elif parse is names and flag == "--mix":
            options.update(type=parse, action="extend", metavar="KIND[,KIND]")
        else:
            options.update(type=parse, metavar=flag.removeprefix("--").upper().replace("-", "_"))
        parser.add_argument(flag, **options)


def read_settings(arguments: argparse.Namespace, section: type[AnySettings]) -> AnySettings:
    """Return the settings of `--config`, overridden by the flags, as a checked `section`."""
    tree: Any = {}
    source = "the flags"
    if arguments.config is not None:
        tree, source = read_json(arguments.config, ConfigError), str(arguments.config)
        if not isinstance(tree, dict):
            raise ConfigError(f"{source} contains a {type(tree).__name__}; expected a JSON object")
    for flag, path, _ in _FLAGS:
        value = getattr(arguments, path)
        if value is None:
            continue
        *sections, key = path.split(".")
        node = tree
        for name in sections:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{source}: {name} is not an object, so {flag} cannot be set")
        node[key] = value
    return parse_section(section, tree, source)


def _field(path: str) -> Any:
    section: Any = Settings
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
) -> argparse.Namespace:
    """Parse the flags of all settings, `--progress`, and the flags that `add_own` adds."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if add_own is not None:
        add_own(parser)
    add_flags(parser)
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show progress bars on stderr (default: if it is a terminal)",
    )
    return parser.parse_args(argv)


def set_up() -> None:
    """Check the packages, log to stderr, and limit the threads to this process's share of cores."""
    require("training heads", "sklearn", "scipy", "matplotlib")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("gensim").setLevel(logging.WARNING)  # it logs every second
    share_cores()
