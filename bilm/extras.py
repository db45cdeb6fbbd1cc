"""The optional packages, and the extras of bilm that install them.

A command checks at its start that the packages it will use are installed.
"""

from __future__ import annotations

from importlib.util import find_spec

from bilm.errors import MissingPackageError

# By module. A test compares them with the extras in pyproject.toml.
EXTRAS = {
    "deepspeed": "train",
    "psutil": "train",
    "tensorboard": "train",
    "sacremoses": "data",
    "sentencepiece": "data",
    "zstandard": "data",
    "pyarrow": "parquet",
    "distributed": "dask",
    "huggingface_hub": "hub",
    "gensim": "downstream",
    "matplotlib": "downstream",
    "scipy": "downstream",
    "sklearn": "downstream",
    "fastapi": "serve",
    "httptools": "serve",
    "uvicorn": "serve",
    "uvloop": "serve",
}

TRAINING = tuple(module for module, extra in EXTRAS.items() if extra == "train")


def require(purpose: str, *modules: str) -> None:
    """Raise `MissingPackageError` if one of `modules`, which `purpose` needs, is not installed."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        extras = ",".join(sorted({EXTRAS[module] for module in missing}))
        raise MissingPackageError(
            f"{purpose} requires {', '.join(missing)}; install it with pip install 'bilm[{extras}]'"
        )
