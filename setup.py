"""Packaging. The ranges here are supported; constraints.txt pins the tested versions."""

from pathlib import Path

from setuptools import find_packages, setup

EXTRAS = {
    "train": ["deepspeed>=0.19,<0.20", "tensorboard>=2.16", "webdataset>=1.0,<2", "psutil>=5.9"],
    "data": ["sentencepiece>=0.2", "sacremoses>=0.1.1", "zstandard>=0.22"],
    "downstream": ["scikit-learn>=1.6", "scipy>=1.12", "gensim>=4.3", "matplotlib>=3.8"],
    "dev": [
        "pytest>=8",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.5",
        "hypothesis>=6.100",
        "ruff>=0.6",
        "mypy>=1.11",
        "pre-commit>=4",
        "pre-commit-hooks>=5",
    ],
}
EXTRAS["all"] = [*EXTRAS["train"], *EXTRAS["data"], *EXTRAS["downstream"]]

setup(
    name="bilm",
    version="0.1.0",
    description="Pretraining and use of deep bidirectional language models (ELMo)",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["bilm*", "data_tools*", "downstream*"]),
    package_data={"bilm": ["py.typed"], "bilm.kernels": ["kernels.c"]},
    install_requires=[
        "torch>=2.6,<3",
        "numpy>=1.26,<3",
        "pydantic>=2.8,<3",
        "h5py>=3.11,<4",
        "safetensors>=0.4.5",
        "tqdm>=4.66",
    ],
    extras_require=EXTRAS,
)
