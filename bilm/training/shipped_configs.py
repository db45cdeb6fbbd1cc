"""The configurations that bilm ships: `--config big` reads `configs/big.json`.

They are in `configs/` of a checkout, and in `bilm/configs/` of an installed package.
"""

from __future__ import annotations

from pathlib import Path

from bilm.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def find_config(name: Path | str) -> Path:
    """Return the file of the shipped configuration `name`, or `name` itself if it is a path."""
    path = Path(name)
    is_path = path.is_file() or path.suffix or path.name != str(name)
    if is_path:
        return path
    installed = _PACKAGE / "configs"
    directory = installed if installed.is_dir() else _PACKAGE.parent / "configs"
    names = sorted(file.stem for file in directory.glob("*.json"))
    if path.name not in names:
        raise ConfigError(
            f"{path} is neither a file nor a configuration of bilm; use one of {', '.join(names)}, "
            "or the path of a JSON file"
        )
    return directory / f"{path.name}.json"
