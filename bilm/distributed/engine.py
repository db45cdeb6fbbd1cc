"""The one module that talks to DeepSpeed: ranks, gradients over ranks, weights of any ZeRO stage.

DeepSpeed averages gradients over ranks: dense ones by all-reduce, the sparse rows of the sampled
softmax by gathering rows. Its own clipping misses sparse gradients, so at stage 0 we clip between
backward and step; at stages 1 to 3, which have no sparse gradients, it clips.

Weights and optimiser state go in and out whole, parameter by parameter, whatever the stage, so
that a checkpoint does not depend on the number of ranks, and holds no pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import deepspeed
import torch
import torch.distributed
from deepspeed.utils import (
    safe_get_full_optimizer_state,
    safe_set_full_optimizer_state,
    safe_set_local_optimizer_state,
)
from torch import Tensor, nn

from bilm.corpus.global_batch import RankShare
from bilm.distributed.ranks import Cluster
from bilm.kernels.sparse_rows import clip_gradients
from bilm.model.language_model import BiLm
from bilm.training.config import Config
from bilm.training.optimizers import STATE_NAMES, build_optimizer

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Engine:
    """A model and its optimiser under DeepSpeed."""

    def __init__(self, cluster: Cluster, model: BiLm, config: Config) -> None:
        stage = config.deepspeed.zero_optimization.stage
        self._cluster = cluster
        self._max_norm = config.train.max_gradient_norm
        self.is_partitioned = stage > 0
        self._dtype = _PRECISIONS[config.train.precision]
        self.model = model.to(cluster.device)
        optimizer = build_optimizer(config.train.optimizer, self.model)
        self._state_names = STATE_NAMES[config.train.optimizer.name]
        self._deepspeed, self._optimizer, _, _ = deepspeed.initialize(
            model=self.model, optimizer=optimizer, config=_deepspeed_config(config, cluster.world)
        )
        self._inner_optimizer: torch.optim.Optimizer = (
            self._optimizer.optimizer if self.is_partitioned else self._optimizer
        )
        self._allocate_state()

    def autocast(self) -> AbstractContextManager[None]:
        """Products in the configured precision."""
        return torch.autocast(
            self._cluster.device.type, self._dtype, enabled=self._dtype != torch.float32
        )

    def __call__(self, *inputs: Any) -> Any:
        """The model's forward pass."""
        return self._deepspeed(*inputs)

    def backward(self, objective: Tensor) -> None:
        """Add the gradient of one micro-batch; the last of a step averages over ranks."""
        self._deepspeed.backward(objective)

    def next_micro_batch(self) -> None:
        """Between two micro-batches of a step: nothing is updated yet."""
        self._deepspeed.step()

    def step(self, learning_rate: float) -> float:
        """Clip and update; returns the gradient norm before the clip.

        At stage 0 a norm that is not finite updates nothing; at the others DeepSpeed has updated
        before it tells the norm.
        """
        for group in self._inner_optimizer.param_groups:
            group["lr"] = learning_rate
        if self.is_partitioned:
            self._deepspeed.step()
            return float(self._deepspeed.get_global_grad_norm())
        norm = float(clip_gradients(self.model.parameters(), self._max_norm))
        if math.isfinite(norm):
            self._deepspeed.step()
        return norm

    def weights(self) -> dict[str, Tensor]:
        """Every weight, whole, on the CPU; all ranks must ask."""
        with self._whole_parameters():
            return {
                name: parameter.detach().to("cpu", copy=True)
                for name, parameter in self.model.named_parameters()
            }

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimiser's memory of every weight, whole, on the CPU; all ranks must ask."""
        return {
            f"{name}/{key}": self._get_state(parameter, key).to("cpu", copy=True)
            for name, parameter in self.model.named_parameters()
            for key in self._state_names
        }

    def load_optimizer_state(
        self, read: Callable[[str, Sequence[int]], Tensor] | None, num_steps: int
    ) -> None:
        """Take up an optimiser's memory after `num_steps`; only rank 0 needs to `read` it."""
        for name, parameter in self.model.named_parameters():
            shape = getattr(parameter, "ds_shape", parameter.shape)
            for key in self._state_names:
                value = read(f"{name}/{key}", shape) if read is not None else torch.empty(shape)
                self._set_state(parameter, key, self._cluster.broadcast(value))
        self.set_step_count(num_steps)

    def set_step_count(self, num_steps: int) -> None:
        """Tell the optimiser how many steps it has made (DeepSpeed makes an empty one itself)."""
        for state in self._inner_optimizer.state.values():
            if "step" in state:
                state["step"] = torch.full_like(torch.as_tensor(state["step"]), float(num_steps))

    def _whole_parameters(self) -> AbstractContextManager[None]:
        """At ZeRO stage 3 each rank holds a part; inside this context, all of each weight."""
        return deepspeed.zero.GatheredParameters(list(self.model.parameters()))  # type: ignore[no-any-return]

    def _allocate_state(self) -> None:
        """Make the optimiser's memory now: Adam would make it at the first step only."""
        flat = [p for group in self._inner_optimizer.param_groups for p in group["params"]]
        for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
            flat = getattr(self._optimizer, name, flat)  # ZeRO 1 and 2; ZeRO 3
        for parameter in flat:
            state = self._inner_optimizer.state[parameter]
            state.setdefault("step", torch.tensor(0.0, device=parameter.device))
            for key in self._state_names:
                if key not in state:
                    state[key] = torch.zeros_like(parameter.data)
        if hasattr(self._optimizer, "_lazy_init_hp_params_optimizer_state"):
            self._optimizer._lazy_init_hp_params_optimizer_state()

    def _get_state(self, parameter: nn.Parameter, key: str) -> Tensor:
        if self.is_partitioned:
            return safe_get_full_optimizer_state(parameter, key)  # type: ignore[no-any-return]
        return self._inner_optimizer.state[parameter][key]  # type: ignore[no-any-return]

    def _set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        if not self.is_partitioned:
            self._inner_optimizer.state[parameter][key].copy_(value)
            return
        if hasattr(parameter, "ds_shape"):
            # By our own slice: stage 3's way by the whole fails where the last slice is shorter.
            padding = -value.numel() % self._cluster.world
            padded = torch.nn.functional.pad(value.flatten(), (0, padding))
            mine = padded.chunk(self._cluster.world)[self._cluster.rank]
            safe_set_local_optimizer_state(parameter, mine, key)
        else:
            safe_set_full_optimizer_state(parameter, value, key)


def _deepspeed_config(config: Config, world: int) -> dict[str, Any]:
    section = config.deepspeed.model_dump(mode="json", exclude_none=True)
    share = RankShare(world=world, accumulation=config.deepspeed.gradient_accumulation_steps)
    share.rows_per_batch(config.deepspeed.train_batch_size, "deepspeed.train_batch_size")
    section["gradient_clipping"] = 0.0  # said, since DeepSpeed clips at 1.0 by default
    if config.deepspeed.zero_optimization.stage > 0:
        section["gradient_clipping"] = config.train.max_gradient_norm or 0.0
        section["zero_allow_untested_optimizer"] = True
    return section
