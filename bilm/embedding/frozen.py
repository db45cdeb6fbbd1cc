"""A biLM inside another module that does not train, save or convert its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from bilm.model.language_model import BiLm


class FrozenBiLm:
    """A biLM with constant weights, which copies share.

    It is not an `nn.Module`, so a module that has one as its attribute has no parameters of it. Its
    weights are never changed in place: `apply` and `with_weights` return another object.
    """

    def __init__(self, model: BiLm) -> None:
        """Share the weights of `model`, which keeps its mode and its gradients."""
        self.model = _copy(model, {id(w): w for w in model.parameters()}).eval()

    def __deepcopy__(self, memo: object) -> FrozenBiLm:
        return self

    def apply(self, function: Callable[[Tensor], Tensor]) -> FrozenBiLm:
        """Convert the weights, as `nn.Module.to` does, but not to a type below float32."""
        is_changed = False
        converted = {}
        for weight in self.model.parameters():
            value = function(weight.detach())
            dtype = torch.promote_types(value.dtype, torch.float32)
            if value.dtype != dtype:
                value = weight.detach().to(value.device, dtype)
            is_changed |= (value.device, value.dtype) != (weight.device, weight.dtype)
            converted[id(weight)] = value
        return self._with(converted) if is_changed else self

    def differences(self, weights: Mapping[str, Tensor]) -> str:
        """Return how these weights, by name, differ from those of the model; "" if they fit."""
        own = {name: tuple(weight.shape) for name, weight in self.model.named_parameters()}
        given = {name: tuple(weight.shape) for name, weight in weights.items()}
        names = [name for name in own.keys() | given.keys() if own.get(name) != given.get(name)]
        return "".join(
            f"the weight {name!r} of the biLM is {given.get(name, 'missing')}; it must be "
            f"{own.get(name, 'absent')}. Use the state dict of the same model.\n"
            for name in sorted(names)[:5]
        )

    def with_weights(self, weights: Mapping[str, Tensor]) -> FrozenBiLm:
        """Return a model with copies of these weights, by name, on the device of this one."""
        return self._with(
            {
                id(weight): weights[name].detach().to(weight, copy=True)
                for name, weight in self.model.named_parameters()
            }
        )

    def _with(self, weights: Mapping[int, Tensor]) -> FrozenBiLm:
        changed = copy.copy(self)
        changed.model = _copy(self.model, weights)
        return changed


def _copy(model: BiLm, weights: Mapping[int, Tensor]) -> BiLm:
    """Copy the modules of `model` with constant weights, given by the id of the old ones."""
    memo: dict[int, object] = {
        key: nn.Parameter(weight.detach(), requires_grad=False) for key, weight in weights.items()
    }
    return copy.deepcopy(model, memo)
