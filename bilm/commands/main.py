"""The `bilm` command, which runs the commands of `bilm`, `data_tools` and `downstream`.

`bilm export ...` is the same as `python -m bilm.commands.export ...`. A module is imported, by its
name in the table, only when its command runs, so that `bilm --help` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple, NoReturn

import bilm
from bilm.distributed.process import limit_spinning
from bilm.errors import USER_ERROR_EXIT_CODE, ConfigError, run_command


class Command(NamedTuple):
    """The module of a command, which has a `main`, and one line of help."""

    module: str
    summary: str
    arguments: tuple[str, ...] = ()  # before those of the user


COMMANDS = {
    "pretrain": Command("bilm.commands.pretrain", "train a biLM, or resume a run"),
    "plan": Command("bilm.commands.pretrain", "estimate the resources of a run", ("--plan",)),
    "evaluate": Command("bilm.commands.evaluate", "measure held-out perplexity"),
    "export": Command("bilm.commands.export", "write the model of a run to a directory"),
    "convert": Command("bilm.commands.convert", "convert from or to the published files"),
    "models": Command("bilm.commands.models", "list the models that come with bilm"),
    "embed": Command("bilm.commands.embed", "write the vectors of a text file"),
    "explore": Command("downstream.explore", "open a page that shows what a model computes"),
    "serve": Command("downstream.explore", "serve a model over HTTP", ("--api-only",)),
    "index": Command("downstream.build_index", "index the words of a text for `bilm explore`"),
    "parity": Command("bilm.parity", "compare bilm with the original implementation"),
    "gpu-check": Command("bilm.commands.gpu_check", "check bilm on the GPUs of this machine"),
    "config": Command("bilm.commands.config", "print a configuration with its defaults"),
    "data build-corpus": Command("data_tools.build_corpus", "build a corpus from text"),
    "data build-vocab": Command(
        "data_tools.build_vocab", "count the words of a text and write its vocabulary"
    ),
    "data build-shards": Command("data_tools.build_shards", "build a corpus, given a vocabulary"),
    "data inspect": Command("data_tools.inspect_corpus", "describe and verify a corpus"),
    "data generate-demo": Command("data_tools.generate_demo", "generate the text of the demo"),
    "tasks classify": Command("downstream.classify", "train a classifier on a frozen biLM"),
    "tasks tag": Command("downstream.tag", "train a tagger on a frozen biLM"),
    "tasks srl": Command("downstream.srl", "train a semantic role labeler on a frozen biLM"),
    "tasks pair": Command("downstream.pair", "train a classifier of pairs of texts"),
    "tasks span": Command("downstream.span", "train a question answerer on a frozen biLM"),
    "tasks coref": Command("downstream.coref", "train a coreference resolver on a frozen biLM"),
    "tasks predict": Command("downstream.predict", "predict with a trained head"),
    "tasks baselines": Command("downstream.baselines.__main__", "train and score baselines"),
    "tasks layers": Command("downstream.analyses.layers", "compare all layers with single ones"),
    "tasks penalty": Command("downstream.analyses.penalty", "compare penalties on the mix"),
    "tasks sample-efficiency": Command(
        "downstream.analyses.sample_efficiency", "compare training set sizes"
    ),
    "tasks probe": Command("downstream.analyses.probe", "probe the layers for parts of speech"),
    "tasks neighbours": Command(
        "downstream.analyses.neighbours", "compare a word across sentences"
    ),
    "tasks senses": Command("downstream.analyses.senses", "compare the layers on word senses"),
}

GROUPS = {
    "data": "build and inspect corpora",
    "tasks": "train and use heads for tasks, and analyze models",
}


def main() -> int:
    """Run the command that the first words name, or print the list of commands."""
    words = sys.argv[1:]
    if words[:1] == ["--version"]:
        print(f"bilm {bilm.__version__}")
        return 0
    group = words[0] if words and words[0] in GROUPS else ""
    names = words[1:] if group else words
    if not names or names[0] in ("--help", "-h"):
        print(_help(group), file=sys.stdout if names else sys.stderr)
        return 0 if names else USER_ERROR_EXIT_CODE
    _run(f"{group} {names[0]}".strip(), names[1:])


def _run(name: str, arguments: list[str]) -> NoReturn:
    """Run the command `name` and exit."""
    if name not in COMMANDS:
        close = get_close_matches(name, [*COMMANDS, *GROUPS], n=3)
        matches = f"the closest are {', '.join(close)}; " if close else ""
        raise ConfigError(f"bilm has no command {name!r}; {matches}`bilm --help` lists all")
    command = COMMANDS[name]
    sys.argv = [f"bilm {name}", *command.arguments, *arguments]
    limit_spinning()  # some commands import torch at once
    module = import_module(command.module)
    if hasattr(module, "run"):  # with its own way to exit
        module.run()
    run_command(module.main)


def _help(group: str) -> str:
    program = f"bilm {group}".strip()
    own = {name: c.summary for name, c in COMMANDS.items() if name.rpartition(" ")[0] == group}
    rows = own if group else {**own, **GROUPS}
    return "\n".join(
        [
            f"usage: {program} COMMAND ..." + ("" if group else "\n       bilm --version"),
            "",
            GROUPS.get(group, "Pretrain and use deep bidirectional language models (ELMo)."),
            "\ncommands:",
            *_columns((name.rpartition(" ")[2], summary) for name, summary in rows.items()),
            f"\n`{program} COMMAND --help` describes a command.",
        ]
    )


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:<20}{summary}" for name, summary in rows]


def run() -> NoReturn:
    """Run the command line and exit."""
    run_command(main)


if __name__ == "__main__":
    run()
