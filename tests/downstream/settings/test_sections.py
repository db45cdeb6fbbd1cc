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
from downstream.settings.sections import Settings
from tests.conftest import ROOT

NEEDED = ["--model", "m", "--train", "a.csv", "--test", "b.csv", "--output", "out/report"]


def settings(*flags: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_settings(parser.parse_args(flags))


def test_flags_alone() -> None:
    found = settings(*NEEDED, "--mix", "trainable,top", "--mix", "layer:1", "--text-columns", "2,3")
    assert found.mix.kinds == ("trainable", "top", "layer:1")
    assert found.data.text_columns == ("2", "3")
    assert found.cache_dir == Path("out/representations")
    assert (found.batch_size(100_000), found.batch_size(1000), found.epochs) == (512, 40, 12)
    assert settings(*NEEDED, "--head", "gru").batch_size(100_000) == 64
    assert found.head.hidden == 256
    assert settings(*NEEDED, "--hidden-dim", "0").head.hidden == 0
    assert settings(*NEEDED, "--head", "gru").head.hidden == 0


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    tree: dict[str, Any] = {
        "model": "m",
        "output": "o",
        "data": {"train": "a.csv", "test": "b.csv", "tokenized": True},
        "train": {"seed": 3, "epochs": 5},
    }
    path.write_text(json.dumps(tree), encoding="utf-8")
    found = settings("--config", str(path), "--seed", "4", "--no-tokenized", "--layer-norm")
    assert (found.train.seed, found.epochs) == (4, 5)
    assert found.data.tokenized is False
    assert found.mix.layer_norm is True
    tree["train"]["epochz"] = 1
    path.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"train\.epochz: .* did you mean 'epochs'"):
        settings("--config", str(path))
    path.write_text('{"data": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="data is no object, so --train cannot be set"):
        settings("--config", str(path), *NEEDED)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="a JSON object is expected"):
        settings("--config", str(path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mix", "best"], "'best' is no mix; known are trainable"),
        (["--mix", "top,top"], "names a mix twice"),
        (["--mix", "none"], "the words need head.vectors"),
        (["--head", "mean_min"], "head.kind"),
        (["--elmo-at", "both"], "has no encoder"),
        (["--head", "gru", "--elmo-at", "output"], "give vectors"),
        (["--penalty", "-1"], "mix.penalty"),
        (["--dropout", "1"], "head.dropout"),
        (["--validation-share", "0"], "data.validation_share"),
        (["--seeds", "0"], "train.num_seeds"),
    ],
)
def test_refused(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(*NEEDED, *flags)


def test_everything_missing_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        settings()
    for name in ("model", "output", "data"):
        assert f"{name}: is missing" in str(caught.value)


@pytest.mark.parametrize("module", ["downstream.classify", "downstream.predict"])
def test_help_imports_no_torch(module: str) -> None:
    code = (
        "import sys, contextlib, io, importlib\n"
        f"main = importlib.import_module({module!r}).main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "    main(['--help'])\n"
        "assert '--' in out.getvalue()\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
