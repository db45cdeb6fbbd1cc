"""The packages and their data; pyproject.toml has everything else.

`configs/` is installed as `bilm/configs`, which pyproject.toml cannot express together with a
search for packages.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["bilm*", "data_tools*", "downstream*"]), "bilm.configs"],
    package_dir={"bilm.configs": "configs"},
    package_data={
        "bilm": ["py.typed"],
        "bilm.kernels": ["kernels.c", "lstm_layer.h"],
        "bilm.configs": ["*.json"],
    },
)
