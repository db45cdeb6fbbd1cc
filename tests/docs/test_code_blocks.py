"""Run or verify every code block of README.md, CONTRIBUTING.md and docs/*.md.

Python blocks and shell commands of a page run in order in a directory of small files. Commands that
take hours or need several machines are not run; their flags must be in the `--help` of the program.
New blocks and pages are found automatically. Blocks of other content are declared as `text`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bilm.training.config import Config
from downstream.settings.sections import Settings
from tests.conftest import ROOT
from tests.docs import workspace
from tests.docs.pages import (
    LANGUAGES,
    PAGES,
    SHELL,
    Block,
    Command,
    blocks,
    commands,
    inline_commands,
)

BIN = Path(sys.executable).parent
CONFIG_SECTIONS = {"model", "data", "train", "deepspeed"}
# Programs that prepare the environment or check the source; they change nothing that a page needs.
NOT_RUN = ("make", "pip", "source", "pre-commit", "ruff", "mypy", "tensorboard", "git")
OWN_TESTS = (("-m", "pytest"), ("-m", "tests.chaos"), ("-m", "tests.cluster"))


def all_blocks(*languages: str) -> list[Block]:
    return [b for page in PAGES for b in blocks(page) if b.language in languages]


def all_commands() -> list[Command]:
    in_blocks = [c for b in all_blocks(*SHELL) if not b.is_script for c in commands(b)]
    return in_blocks + [c for page in PAGES for c in inline_commands(page)]


def needs_too_much(command: Command) -> bool:
    """Whether a command is too slow, needs machines, works on the checkout, or is only a name."""
    target = command.program[-1]
    is_benchmark = target.startswith("benchmarks/") and target != "benchmarks/zipf.py"
    is_name = command.words[0] == "bilm" and command.words == command.program  # in prose
    is_own_test = command.program[1:] in OWN_TESTS
    return (
        command.words[0] in NOT_RUN
        or (is_benchmark and command.words[0] != "deepspeed")
        or is_own_test
        or is_name
        or target.startswith("docs/")
        or "experiments.results" in command.words
        or "experiments.comparison" in command.words
        or "--hostfile" in command.words
        or "--scheduler" in command.words
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_declares_the_language_of_every_block(page: Path) -> None:
    unknown = [f"{b} is {b.language!r}" for b in blocks(page) if b.language not in LANGUAGES]
    assert not unknown, f"expected one of {LANGUAGES}: {unknown}"


@cache
def help_of(program: tuple[str, ...]) -> str:
    """Return the `--help` of a program and of its subcommands."""
    start = {"python": [sys.executable], "bilm": [sys.executable, "-m", "bilm"]}
    words = [*start.get(program[0], [str(BIN / program[0])]), *program[1:]]
    run = subprocess.run(
        [*words, "--help"],
        cwd=ROOT,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        timeout=workspace.TIMEOUT_SECONDS,
    )
    assert run.returncode == 0, f"{' '.join(program)} --help: {run.stderr}"
    return run.stdout


def programs_and_flags(command: Command) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield each program that a command starts, with the flags that it gets.

    A launcher starts a script or a module, whose flags come after its name. A subcommand has its
    own flags.
    """
    words = command.words
    if words[0] in ("deepspeed", "torchrun"):
        is_module = "--module" in words or "-m" in words
        end = r"bilm\.commands\.\w+" if is_module else r".*\.py"
        place = next(i for i, word in enumerate(words) if re.fullmatch(end, word))
        yield words[:1], _flags(words[:place])
        program = ("python", "-m", words[place]) if is_module else ("python", words[place])
        yield program, _flags(words[place:])
    elif command.program[-1] in ("launch/convert.py", "convert", "pre-commit"):
        rest = command.words[len(command.program) :]
        yield (*command.program, *rest[:1]), _flags(rest)
    else:
        yield command.program, command.flags


def _flags(words: tuple[str, ...]) -> list[str]:
    return [word.partition("=")[0] for word in words if word.startswith("--")]


@pytest.mark.parametrize("command", all_commands(), ids=str)
def test_uses_flags_that_exist(command: Command) -> None:
    if command.words[0] == "make":
        check_make(command)
    elif command.words[0] == "pip":
        check_extras(command)
    elif command.words[0] == "source":
        assert "-m venv .venv" in (ROOT / "Makefile").read_text(encoding="utf-8")
        assert command.words[1:] == (".venv/bin/activate",)
    elif command.words[0].startswith("--"):
        assert set(command.flags) <= listed_flags(("python", "-m", "downstream.classify"))
    elif command.words[0] == "pre-commit" and not (BIN / "pre-commit").exists():
        pytest.skip("pre-commit is not installed")
    elif command.words[0] != "git":
        for program, flags in programs_and_flags(command):
            assert set(flags) <= listed_flags(program), f"{' '.join(program)} has no such flag"


def listed_flags(program: tuple[str, ...]) -> set[str]:
    return {*re.findall(r"--[A-Za-z0-9][\w-]*", help_of(program)), "--help"}


def check_make(command: Command) -> None:
    """Check that the Makefile has the targets, without running them."""
    targets = [word for word in command.words[1:] if "=" not in word and not word.startswith("-")]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), f"no target {target}"


def check_extras(command: Command) -> None:
    """Check that pyproject.toml has the extras that `pip install` names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"\[([\w,]+)\]", " ".join(command.words)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), extras


@pytest.mark.parametrize("block", all_blocks("json"), ids=str)
def test_json_is_valid(block: Block) -> None:
    try:
        tree = json.loads(block.code)
    except json.JSONDecodeError:
        assert [json.loads(line) for line in block.code.splitlines()]  # one object per line
        return
    if "output" in tree and "model" in tree:
        Settings.model_validate_json(block.code)
    elif isinstance(tree, dict) and tree and set(tree) <= CONFIG_SECTIONS:
        whole = workspace.small_config(ROOT / "configs" / "big.json")
        Config.model_validate_json(json.dumps(merged(whole, tree)))


def merged(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `tree` with the values of `changes`, section by section."""
    result = dict(tree)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value
    return result


@pytest.mark.parametrize("block", [b for b in all_blocks(*SHELL) if b.is_script], ids=str)
def test_script_has_valid_syntax_and_flags(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.code, text=True, check=True, timeout=20)
    code = block.code.replace("\\\n", " ")
    for start, script, end in re.findall(r"deepspeed ([^&\n]*?)(launch/\w+\.py)([^&\n]*)", code):
        assert set(re.findall(r"--\w+", start)) <= listed_flags(("deepspeed",))
        assert set(re.findall(r"--[\w-]+", end)) <= listed_flags(("python", script))


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("docs")
    workspace.build(directory)
    return directory


def readers_names() -> dict[str, Any]:
    """Return the names that pages use for the reader's own data."""
    texts = [
        f"the {noun} {verb} ." for noun in ("bank", "river") for verb in ("floods", "lends")
    ] * 10
    labels = ["money" if "bank" in text else "nature" for text in texts]
    layers = torch.tensor(np.linspace(-1, 1, 3 * 2 * 4 * 8, dtype=np.float32)).reshape(3, 2, 4, 8)
    return {
        "__name__": "__main__",
        "sentences": [["The", "bank", "floods", "."], ["Hello", "!"]],
        "texts": texts,
        "labels": labels,
        "test_texts": texts[:6],
        "test_labels": labels[:6],
        "layers": layers,  # (layers, sentences, words, dim)
        "mask": torch.ones(2, 4, dtype=torch.bool),
        "task_loss": torch.tensor(1.0),
    }


PAGES_WITH_CODE = [
    page for page in PAGES if any(b.language in (*SHELL, "python") for b in blocks(page))
]


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: page.name)
def test_runs_in_order(
    page: Path, small_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "work"
    shutil.copytree(small_files, directory, symlinks=True)
    monkeypatch.chdir(directory)
    names = readers_names()
    steps: list[Block | Command] = [b for b in blocks(page) if b.language == "python"]
    steps += [
        c for b in blocks(page) if b.language in SHELL and not b.is_script for c in commands(b)
    ]
    if page.name == "README.md":
        steps += inline_commands(page)
    for step in sorted(steps, key=lambda step: step.line):
        if isinstance(step, Block):
            source = "\n" * (step.line - 1) + step.code  # tracebacks show the line of the page
            exec(compile(source, str(page), "exec"), names)
        elif not needs_too_much(step) and not step.words[0].startswith("--"):
            workspace.execute_command(step, directory)
