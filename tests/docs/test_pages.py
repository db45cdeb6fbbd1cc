"""Tests of the parser of documentation pages, and of the checks that must fail on broken blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs import test_code_blocks as checks
from tests.docs import workspace
from tests.docs.pages import Block, Command, blocks, commands

PAGE = ROOT / "README.md"


def command(text: str) -> Command:
    (found,) = commands(Block(PAGE, 1, "sh", text))
    return found


def test_finds_blocks_with_language_and_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n```python\na = 1\n```\n- item\n  ```\n  ls\n  ```\n````text\n```\n````\n"
    )
    found = [(b.line, b.language, b.code) for b in blocks(page)]
    assert found == [(4, "python", "a = 1\n"), (8, "", "ls\n"), (11, "text", "```\n")]


def test_rejects_unclosed_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n")
    with pytest.raises(AssertionError, match="not closed"):
        blocks(page)


def test_joins_continued_lines_and_drops_comments() -> None:
    block = Block(PAGE, 5, "sh", "# first\nX=1 python a.py \\\n    --b 'c d'  # why\nmake test\n")
    first, second = commands(block)
    assert (first.line, first.words) == (6, ("python", "a.py", "--b", "c d"))
    assert (second.line, second.words, second.program) == (8, ("make", "test"), ("make",))


@pytest.mark.parametrize(
    "text",
    [
        "python -m data_tools.build_corpus --inputs text.txt",
        "python launch/convert.py from-published a b c --tokenize moses",
        "deepspeed --num_cpus 2 launch/pretrain.py --config a",
        "deepspeed launch/pretrain.py --configuration a",
        "python -m bilm.config",
        "python launch/nothing.py",
        "bilm export runs/big --modle model",
        "bilm data build-corpora --input text.txt",
        "bilm data build-corpus --inputs text.txt",
        "bilm convert from-published a b c --tokenize moses",
        "deepspeed --module bilm.commands.pretrain --configuration a",
        "make everything",
        "pip install -e '.[everything]'",
        "--label-columns 1",
    ],
)
def test_rejects_unknown_programs_and_flags(text: str) -> None:
    with pytest.raises(AssertionError):
        checks.test_uses_flags_that_exist(command(text))


@pytest.mark.parametrize(
    "code",
    [
        "{",
        '{"train": {"sead": 1}}',
        '{"model": "runs/big", "output": "report", "heads": {}}',
        '{"a": 1}\n{"a"}',
    ],
)
def test_rejects_invalid_json(code: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra inputs|not a known"):
        checks.test_json_is_valid(Block(PAGE, 1, "json", code))


def test_rejects_script_with_unknown_flag() -> None:
    script = "#!/bin/bash\nsrun deepspeed --no_ssh launch/pretrain.py --configuration a &\n"
    with pytest.raises(AssertionError):
        checks.test_script_has_valid_syntax_and_flags(Block(PAGE, 1, "sh", script))


def test_names_the_outputs_of_commands() -> None:
    export = command("python launch/export.py runs/big --model model/ --published published/")
    convert = command("python launch/convert.py to-published model/ published/")
    embed = command("python launch/embed.py --model model --output a.hdf5")
    assert workspace.outputs(export) == ["model/", "published/"]
    assert workspace.outputs(convert) == ["published/"]
    assert workspace.outputs(embed) == ["a.hdf5"]
    assert workspace.outputs(command("bilm export runs/big --model model/")) == ["model/"]
    assert workspace.outputs(command("bilm convert to-published model/ out/")) == ["out/"]


@pytest.mark.parametrize(
    "text",
    [
        "bilm pretrain --config big data.corpus=corpus",
        "bilm data build-corpus --input a --output b",
        "bilm tasks classify --model m --train a --test b --output c",
        "bilm convert to-published model/ published/ --overwrite",
        "deepspeed --num_gpus 2 --module bilm.commands.pretrain --config big --dry-run",
        "torchrun --nproc-per-node 2 -m bilm.commands.pretrain --config big --fresh",
        "bilm --version",
    ],
)
def test_accepts_forms_of_the_command(text: str) -> None:
    checks.test_uses_flags_that_exist(command(text))
