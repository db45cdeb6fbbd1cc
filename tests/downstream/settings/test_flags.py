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
        (["--mix", "best"], "^--mix: 'best' is not a mix; use one of trainable"),
        (["--mix", "top,top"], "contains a mix twice"),
        (["--mix", "none"], "^--mix contains 'none', which needs word vectors; set --vectors$"),
        (["--head", "mean_min"], '^--head is "mean_min"; it must be .mean.'),
        (["--elmo-at", "both"], "^--elmo-at is 'both', but the head 'mean_max' has no encoder"),
        (["--head", "gru", "--elmo-at", "output"], "^--elmo-at is .*; set --vectors$"),
        (["--penalty", "-1"], "^--penalty is -1.0; it must be greater than or equal to 0$"),
        (["--dropout", "1"], "^--dropout is 1.0; it must be less than 1$"),
        (["--validation-share", "0"], "^--validation-share is 0.0; it must be greater than 0$"),
        (["--seeds", "0"], "^--seeds is 0; it must be greater than or equal to 1$"),
        (["--seeds", "0", "--epochs", "0"], "^--epochs is 0; .*; --seeds is 0; "),
        (
            ["--mix", "frozen", "--mix-weights", "nan"],
            r"^--mix-weights is NaN; it must be a finite",
        ),
        (
            ["--hidden-dim", "65537"],
            "^--hidden-dim is 65537; it must be less than or equal to 65536",
        ),
        (["--encoder-dim", "1000000000"], "^--encoder-dim is 1000000000; it must be less than or"),
        (["--min-steps", "10000001"], "^--min-steps is 10000001; it must be less than or equal to"),
        (["--epochs", str(10**20)], "^--epochs is 1"),
        (
            ["--mix-weights", "1,2"],
            "^--mix-weights has an effect only for the mix `frozen`; remove",
        ),
        (["--mix-dim", "3"], "^--mix-dim has an effect only for the mix `learned`; remove it$"),
        (["--threshold", "0.5"], "^--threshold has an effect only for --target multilabel; remove"),
        (["--label-separator", "|"], "^--label-separator has an effect only for --target multi"),
    ],
)
def test_rejects_invalid_values(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(*NEEDED, *flags)


def test_reports_all_missing_settings_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        settings()
    message = str(caught.value)
    assert message.startswith("--output, --test and --train are missing; --model is missing; the ")
    assert "its tokenizer" in message


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("{}", ["--seeds", "0"], "^--seeds is 0; it must be greater than or equal to 1$"),
        ('{"train": {"epochs": 0}}', [], r"task.json: 1 error\n  train.epochs: input should be g"),
        ('{"mix": {"kinds": ["none"]}}', [], r"task.json: 1 error\n  mix.kinds contains 'none'"),
        ("{}", ["--mix", "none"], "^--mix contains 'none', which needs .*; set head.vectors$"),
    ],
)
def test_names_the_settings_of_a_file_by_their_path(
    tmp_path: Path, text: str, flags: list[str], message: str
) -> None:
    path = tmp_path / "task.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        settings("--config", str(path), *NEEDED, *flags)


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
