"""`--device` of the commands that run a model."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from bilm.commands.main import COMMANDS
from bilm.errors import USER_ERROR_EXIT_CODE, run_command
from tests.conftest import GOLDEN

MODEL = ["--options", str(GOLDEN / "options.json"), "--weights", str(GOLDEN / "weights.hdf5")]
TEXT = ["--input", str(GOLDEN / "vocab.txt"), "--output", "vectors.hdf5"]
# The commands that do not compute with a model, and those that train one.
WITHOUT_DEVICE = {"pretrain", "plan", "export", "convert", "config", "models"}


NAMES = [n for n in COMMANDS if n not in WITHOUT_DEVICE and not n.startswith("data ")]


@pytest.mark.parametrize("name", NAMES)
def test_help_describes_the_device(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit):
        import_module(COMMANDS[name].module).main()
    text = capsys.readouterr().out
    assert "--device" in text
    assert ("--precision" in text) == (name not in ("parity", "gpu-check"))


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("bilm.parity", [str(GOLDEN / "embeddings.npz")]),
        ("bilm.commands.evaluate", ["--model", "m", "--corpus", "c"]),
        (
            "bilm.commands.embed",
            [*MODEL, *TEXT, "--tokenizer", "whitespace"],
        ),
    ],
)
def test_unknown_device_is_an_error_of_the_user(
    module: str,
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [module, *flags, "--device", "gpu"])
    with pytest.raises(SystemExit) as exit_:
        run_command(import_module(module).main)
    assert exit_.value.code == USER_ERROR_EXIT_CODE
    message = "error: the device is 'gpu', which this machine does not have; available devices: cpu"
    assert message in capsys.readouterr().err
