from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import ConfigError
from downstream.settings.flags import add_flags, read_settings
from downstream.settings.sections import BaselineSettings, Settings
from tests.conftest import ROOT

NEEDED = ["--model", "m", "--train", "a.csv", "--test", "b.csv", "--output", "out/report"]


def parsed(flags: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(flags)


def settings(*flags: str) -> Settings:
    return read_settings(parsed(list(flags)), Settings)


def test_reads_flags_without_config_file() -> None:
    chosen = settings(
        *NEEDED, "--mix", "trainable,top", "--mix", "layer:1", "--text-columns", "2,3"
    )
    assert chosen.mix.kinds == ("trainable", "top", "layer:1")
    assert chosen.data.text_columns == ("2", "3")
    assert chosen.cache_dir == Path("out/representations")


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    tree: dict[str, Any] = {
        "model": "m",
        "output": "o",
        "data": {"train": "a.csv", "test": "b.csv", "tokenized": True},
        "train": {"seed": 3, "epochs": 5},
    }
    path.write_text(json.dumps(tree), encoding="utf-8")
    chosen = settings("--config", str(path), "--seed", "4", "--no-tokenized", "--layer-norm")
    assert (chosen.train.seed, chosen.train.epochs) == (4, 5)
    assert chosen.data.tokenized is False
    assert chosen.mix.layer_norm is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"train": {"epochz": 1}}', r"train\.epochz: .* the closest key is 'epochs'"),
        ('{"data": 1}', "data is not an object, so --train cannot be set"),
        ("[]", "contains a list; expected a JSON object"),
    ],
)
def test_rejects_invalid_config_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "task.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        settings("--config", str(path), *NEEDED)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mix", "best"], "'best' is not a mix; use one of trainable"),
        (["--mix", "top,top"], "contains a mix twice"),
        (["--mix", "none"], "set head.vectors"),
        (["--head", "mean_min"], "head.kind"),
        (["--elmo-at", "both"], "has no encoder"),
        (["--head", "gru", "--elmo-at", "output"], "set vectors"),
        (["--penalty", "-1"], "mix.penalty"),
        (["--dropout", "1"], "head.dropout"),
        (["--validation-share", "0"], "data.validation_share"),
        (["--seeds", "0"], "train.num_seeds"),
    ],
)
def test_rejects_invalid_values(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(*NEEDED, *flags)


def test_reports_all_missing_settings_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        settings()
    for name in ("model", "output", "data"):
        assert f"{name}: is missing" in str(caught.value)


def test_baselines_do_not_require_a_model() -> None:
    assert read_settings(parsed(NEEDED[2:]), BaselineSettings).model is None


@pytest.mark.parametrize("module", ["downstream.classify", "downstream.predict"])
def test_help_does_not_import_torch(module: str) -> None:
    code = (
        "import sys, contextlib, io, importlib\n"
        f"main = importlib.import_module({module!r}).main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "    main(['--help'])\n"
        "assert '--' in out.getvalue()\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
