"""bilm/pretrained/digests."""

from __future__ import annotations

import hashlib
import json

from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import Tokenizer


def model_digest(pretrained: PretrainedBiLm, tokenizer: Tokenizer | None) -> str:
    """The sha256 of all that decides a sentence's vectors: weights, config, words, tokeniser."""
    digest = hashlib.sha256()
    config = pretrained.model.config
    digest.update(config.model_dump_json(include={"characters", "lstm", "bidirectional"}).encode())
    for name, parameter in sorted(pretrained.model.named_parameters()):
        if not name.startswith("softmax."):
            digest.update(f"{name} {tuple(parameter.shape)}".encode())
            digest.update(parameter.detach().contiguous().cpu().numpy().data)
    if config.characters is None and pretrained.vocabulary is not None:
        digest.update(pretrained.vocabulary.digest.encode())
    if tokenizer is not None:
        digest.update(json.dumps(tokenizer.spec.to_json(), sort_keys=True).encode())
        digest.update(tokenizer.model_bytes())
    return digest.hexdigest()
