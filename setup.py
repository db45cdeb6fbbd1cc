"""The packages and their data; pyproject.toml has everything else.

`configs/` and `models/` are installed as `bilm/configs` and `bilm/models`, which pyproject.toml
cannot express together with a search for packages.
"""

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["bilm*", "data_tools*", "downstream*"])

setup(
    packages=[*PACKAGES, "bilm.configs", "bilm.models"],
    package_dir={"bilm.configs": "configs", "bilm.models": "models"},
    package_data={
        "bilm": ["py.typed"],
        "bilm.kernels": ["kernels.c", "lstm_layer.h"],
        "bilm.configs": ["*.json"],
        "bilm.models": ["*/*"],
        "downstream.explorer": ["page/*"],
    },
)
