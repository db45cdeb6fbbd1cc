"""bilm: pretrain deep bidirectional language models (ELMo) and use their representations.

Data flow: raw text -> `data_tools` -> corpus on disk -> `bilm.corpus` -> `bilm.model` ->
`bilm.training` -> checkpoint -> `bilm.pretrained` -> `bilm.embedding` -> `downstream`.

Public names are imported on first use, so that `import bilm` is fast and tools that do not need
torch do not load it. Before that, waiting threads are set to sleep soon, unless the user has chosen
how OpenMP waits; this has an effect only if torch has not been imported yet.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bilm.embedding.elmo import Elmo as Elmo
    from bilm.embedding.embedder import Embedder as Embedder
    from bilm.embedding.embedder import Limits as Limits
    from bilm.embedding.output import Output as Output
    from bilm.embedding.scorer import Scorer as Scorer
    from bilm.model.config import ModelConfig as ModelConfig
    from bilm.model.language_model import BiLm as BiLm
    from bilm.model.scalar_mix import ScalarMix as ScalarMix
    from bilm.pretrained.model_directory import PretrainedBiLm as PretrainedBiLm
    from bilm.text.vocabulary import Vocabulary as Vocabulary
    from bilm.training.config import Config as Config
    from bilm.training.config import load_config as load_config
    from bilm.training.train import TrainResult as TrainResult
    from bilm.training.train import train as train

__version__ = "0.1.0"

_MODULES = {
    "BiLm": "bilm.model.language_model",
    "Config": "bilm.training.config",
    "Elmo": "bilm.embedding.elmo",
    "Embedder": "bilm.embedding.embedder",
    "Limits": "bilm.embedding.embedder",
    "ModelConfig": "bilm.model.config",
    "Output": "bilm.embedding.output",
    "PretrainedBiLm": "bilm.pretrained.model_directory",
    "ScalarMix": "bilm.model.scalar_mix",
    "Scorer": "bilm.embedding.scorer",
    "TrainResult": "bilm.training.train",
    "Vocabulary": "bilm.text.vocabulary",
    "load_config": "bilm.training.config",
    "train": "bilm.training.train",
}

__all__ = ["BiLm", "Config", "Elmo", "Embedder", "Limits", "ModelConfig", "Output"]
__all__ += ["PretrainedBiLm", "ScalarMix", "Scorer", "TrainResult", "Vocabulary", "__version__"]
__all__ += ["load_config", "train"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bilm' has no attribute {name!r}")
    from bilm.distributed.process import limit_spinning

    limit_spinning()
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
