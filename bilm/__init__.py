"""bilm: pretraining deep bidirectional language models (ELMo), and putting them to work.

The walk, as data: raw text -> `data_tools` -> corpus on disk -> `bilm.batches` ->
`bilm.characters` -> `bilm.token_encoder` -> `bilm.bilstm` -> `bilm.sampled_softmax` ->
checkpoint -> `bilm.embedder` -> `bilm.scalar_mix` -> `downstream`.

Public names are looked up on first use, so that `import bilm` and the tools that need no torch
start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bilm.config import Config as Config
    from bilm.config import ModelConfig as ModelConfig
    from bilm.config import load_config as load_config
    from bilm.embedder import Embedder as Embedder
    from bilm.embedder import Limits as Limits
    from bilm.model import BiLm as BiLm
    from bilm.pretrained import PretrainedBiLm as PretrainedBiLm
    from bilm.representation_output import Output as Output
    from bilm.scalar_mix import ScalarMix as ScalarMix
    from bilm.vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

_HOMES = {
    "BiLm": "bilm.model",
    "Config": "bilm.config",
    "Embedder": "bilm.embedder",
    "Limits": "bilm.embedder",
    "ModelConfig": "bilm.config",
    "Output": "bilm.representation_output",
    "PretrainedBiLm": "bilm.pretrained",
    "ScalarMix": "bilm.scalar_mix",
    "Vocabulary": "bilm.vocabulary",
    "load_config": "bilm.config",
}

__all__ = ["BiLm", "Config", "Embedder", "Limits", "ModelConfig", "Output"]
__all__ += ["PretrainedBiLm", "ScalarMix", "Vocabulary", "__version__", "load_config"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bilm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
