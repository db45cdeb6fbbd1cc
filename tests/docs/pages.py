"""The code blocks and commands of the documentation pages."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = ("", "sh", "bash")
LANGUAGES = (*SHELL, "python", "json", "text")

_FENCE = re.compile(r"^( *)(```+)(.*)$")
_INLINE_COMMAND = re.compile(r"`((?:bilm|python|deepspeed|torchrun|make) [^`]+)`")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True)
class Block:
    """A fenced code block; `line` is the number of its first line of code, from 1."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_script(self) -> bool:
        """Whether the block is a shell script, which is not run line by line."""
        return self.language in SHELL and self.code.startswith("#!")


@dataclass(frozen=True)
class Command:
    """One shell command of a page, and its words without variable assignments."""

    page: Path
    line: int
    text: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def program(self) -> tuple[str, ...]:
        """The words that start the program: `python -m x`, `python x.py`, `bilm x`, `make`."""
        match self.words[:2]:
            case ("python", "-m") | ("bilm", "data" | "tasks"):
                return self.words[:3]
            case ("python" | "bilm", word) if not word.startswith("-"):
                return self.words[:2]
        return self.words[:1]

    @property
    def flags(self) -> list[str]:
        """The flags without their values."""
        return [word.partition("=")[0] for word in self.words if word.startswith("--")]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of `page` in order; an unclosed fence is an error."""
    found = []
    indent, fence, start, language, lines = 0, "", 0, "", [""]
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        match = _FENCE.match(line)
        if fence:
            if match and match[2] == fence and not match[3].strip():
                found.append(Block(page, start, language, "".join(lines)))
                fence = ""
            else:
                lines.append(line[indent:] + "\n")
        elif match:
            indent, fence, language = len(match[1]), match[2], match[3].strip()
            start, lines = number + 1, []
    assert not fence, f"{page.name}:{start}: the code block is not closed"
    return found


def commands(block: Block) -> list[Command]:
    """Return the commands of a shell block, with continued lines joined and comments removed."""
    found = []
    text, start = "", block.line
    for number, line in enumerate(block.code.splitlines(), start=block.line):
        start = start if text else number
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        if shlex.split(text, comments=True):
            found.append(_command(block.page, start, text))
        text = ""
    assert not text, f"{block}: the last line is continued"
    return found


def inline_commands(page: Path) -> list[Command]:
    """Return the commands in code spans outside of blocks, such as those of tables."""
    found = []
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        inside ^= _FENCE.match(line) is not None
        if not inside:
            texts = (match[1].replace("\\|", "|") for match in _INLINE_COMMAND.finditer(line))
            found += [_command(page, number, text) for text in texts if "..." not in text]
    return found


def _command(page: Path, line: int, text: str) -> Command:
    words = shlex.split(text, comments=True)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return Command(page, line, text, tuple(words))
