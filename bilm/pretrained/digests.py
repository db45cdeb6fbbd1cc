"""The digest that identifies a model: two models with the same digest produce the same vectors.

Cost: one SHA-256 pass over the weights.
"""

from __future__ import annotations

import hashlib
import json

from bilm.pretrained.model_directory import PretrainedBiLm


def model_digest(pretrained: PretrainedBiLm) -> str:
    """Return the SHA-256 of everything that determines the vectors of a text.

    It covers the configuration, the weights by name, shape and content, the vocabulary of a model
    that reads word ids, and the tokenizer. The softmax and dropout do not affect vectors.
    """
    digest = hashlib.sha256()
    config = pretrained.model.config
    digest.update(config.model_dump_json(include={"characters", "lstm", "bidirectional"}).encode())
    for name, parameter in sorted(pretrained.model.encoder_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().contiguous().cpu().numpy().data)
    if config.characters is None and pretrained.vocabulary is not None:
        digest.update(pretrained.vocabulary.digest.encode())
    tokenizer = pretrained.tokenizer
    if tokenizer is not None:
        digest.update(json.dumps(tokenizer.spec.to_json(), sort_keys=True).encode())
        digest.update(tokenizer.model_bytes())
    return digest.hexdigest()
