"""The `bilm` command."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import bilm
from bilm.commands.main import COMMANDS, GROUPS, main
from bilm.errors import ConfigError
from tests.conftest import ROOT


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bilm", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_names_modules_that_exist(name: str) -> None:
    assert find_spec(COMMANDS[name].module) is not None


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_help_lists_all_commands(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bilm", *group.split(), "--help"])
    assert main() == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        if name.rpartition(" ")[0] == group:
            assert name.rpartition(" ")[2] in text
            assert command.summary in text
    assert all(name in text for name in GROUPS) or group


def test_prints_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bilm", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == f"bilm {bilm.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrian"], r"bilm has no command 'pretrian'; the closest are pretrain;"),
        (["data", "build_corpus"], r"no command 'data build_corpus'; the closest are data build-c"),
        (["xyz"], r"bilm has no command 'xyz'; `bilm --help` lists all"),
        (["--config", "big"], r"no command '--config'"),
    ],
)
def test_rejects_unknown_command(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bilm", *words])
    with pytest.raises(ConfigError, match=message):
        main()


def test_prints_help_if_no_command_is_given() -> None:
    for words in ([], ["data"]):
        done = run(*words)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: bilm ")
    done = run("tasks", "clasify")
    assert done.returncode == 2
    assert done.stderr.startswith("error: bilm has no command 'tasks clasify'")


def test_help_names_the_program() -> None:
    assert run("data", "inspect", "--help").stdout.startswith("usage: bilm data inspect ")
    for module in ("data_tools.inspect_corpus", "downstream.baselines"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.stdout.startswith(f"usage: python -m {module} ")


def test_does_not_import_the_commands() -> None:
    code = (
        "import sys\nsys.argv = ['bilm', 'data', '--help']\n"
        "from bilm.commands.main import main\nmain()\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'torch', 'numpy', 'pydantic', 'argparse', 'data_tools'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_runs_a_command_with_its_arguments() -> None:
    done = run("config", "small", "train.seed=7")
    assert done.returncode == 0, done.stderr
    assert '"seed": 7' in done.stdout
    done = run("config", "tiny")
    assert done.returncode == 2
    assert "use one of big, demo, english_small, medium, news, small, or the path of a JSON file" in done.stderr
