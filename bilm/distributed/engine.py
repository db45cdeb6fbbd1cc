"""A model and its optimizer under DeepSpeed. Only this module imports DeepSpeed.

At ZeRO stage 0, `dense_exchange.py` averages dense gradients over ranks during the backward pass,
and `row_exchange.py` the sparse rows of the sampled softmax. DeepSpeed's clipping ignores sparse
gradients, so `Engine` clips between backward and step. At stages 1 to 3, DeepSpeed averages
and clips dense gradients; `table_updates.py` updates the tables of a sampled softmax, which stage 3
does not support.

At every stage, weights and optimizer state are read and loaded as complete tensors, parameter by
parameter. A checkpoint therefore does not depend on the number of ranks, and contains no pickle.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import deepspeed
import torch
from deepspeed.utils import (
    safe_get_full_optimizer_state,
    safe_set_full_optimizer_state,
    safe_set_local_optimizer_state,
)
from torch import Tensor, nn

from bilm.distributed.dense_exchange import DenseExchange
from bilm.distributed.ranks import Ranks
from bilm.distributed.row_exchange import RowExchange, RowPlan
from bilm.distributed.table_updates import TableUpdates, dense_weights, sparse_tables
from bilm.kernels.sparse_rows import clip_gradients
from bilm.model.devices import HostBuffers
from bilm.model.language_model import BiLm
from bilm.model.precision import precision_context


@dataclass(frozen=True)
class EngineSettings:
    """The settings of an engine."""

    deepspeed: dict[str, Any]  # DeepSpeed's own configuration
    stage: int  # of ZeRO
    max_gradient_norm: float | None
    state_names: tuple[str, ...]  # tensors of the weight's shape in the optimizer's state

    @property
    def sent_dtype(self) -> torch.dtype:
        """The dtype in which ranks exchange gradients at stage 0."""
        is_lower = self.deepspeed.get("communication_data_type") == "bf16"
        return torch.bfloat16 if is_lower else torch.float32


class Engine:
    """A model and its optimizer under DeepSpeed."""

    def __init__(
        self,
        ranks: Ranks,
        model: BiLm,
        make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        settings: EngineSettings,
    ) -> None:
        """Wrap `model`, which must be on the device of `ranks`, and optimizers of its weights."""
        self.model = model
        self.is_partitioned = settings.stage > 0
        self._ranks = ranks
        self._max_norm = settings.max_gradient_norm
        self._state_names = settings.state_names
        # DeepSpeed would spend minutes at the first start compiling its shared-memory collectives;
        # if it is killed meanwhile, it leaves a lock on which every later start hangs.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self._dense_exchange: DenseExchange | None = None
        self._row_exchange: RowExchange | None = None
        self._table_updates: TableUpdates | None = None
        tables = sparse_tables(model)
        weights = list(model.parameters())
        if ranks.world > 1 and tables:
            self._row_exchange = RowExchange(tables, settings.sent_dtype)
        dense = [weight for weight in weights if not any(weight is t for t in tables)]
        if ranks.world > 1 and not self.is_partitioned:
            self._dense_exchange = DenseExchange(dense_weights(model), settings.sent_dtype)
        if self.is_partitioned and tables:
            optimizer, weights = make_optimizer(tables), dense
            self._table_updates = TableUpdates(tables, optimizer, settings.max_gradient_norm)
        self._deepspeed, self._optimizer, _, _ = deepspeed.initialize(
            model=model,
            optimizer=make_optimizer(weights),
            config=settings.deepspeed,
        )
        if self._table_updates is not None:
            self._table_updates.join(self._optimizer)
        # It also forgets the groups of DeepSpeed, which another run in this process would use.
        ranks.destroy_group = deepspeed.comm.destroy_process_group
        self._inner_optimizer: torch.optim.Optimizer = (
            self._optimizer.optimizer if self.is_partitioned else self._optimizer
        )
        self._allocate_state()
        if not self.is_partitioned:  # gradients are exchanged here, if there are several ranks
            self._deepspeed.buffered_allreduce_fallback = lambda *_, **__: None
        self._accumulation: int = settings.deepspeed.get("gradient_accumulation_steps", 1)
        self._has_failed = torch.zeros((), device=ranks.device)
        self._num_micro_batches = 1  # of the current step, so far

    @property
    def reads_late(self) -> bool:
        """Whether to call `step_if_finite` instead of `step`, which waits for an accelerator."""
        # Only fused optimizers accept the condition on the device.
        is_fused = all(group.get("fused") for group in self._inner_optimizer.param_groups)
        return is_fused and not self.is_partitioned and self._ranks.device.type != "cpu"

    def __call__(self, *inputs: Any) -> Any:
        """Run the model's forward pass."""
        return self._deepspeed(*inputs)

    def backward(self, objective: Tensor, rows: RowPlan | None) -> None:
        """Add the gradient of one micro-batch; the last one of a step averages over ranks.

        `rows` is needed for a sampled softmax on several ranks.
        """
        # Autocast has determined the dtypes in forward; only the use of TF32 is still open.
        is_last = self._num_micro_batches == self._accumulation
        if self._dense_exchange is not None and is_last:
            self._dense_exchange.start()
        if self._row_exchange is not None and rows is not None:
            self._row_exchange.start(rows, is_last)
        is_tf32 = self.model.training_precision == "tf32"
        with precision_context(self._ranks.device, "tf32" if is_tf32 else "float32"):
            self._deepspeed.backward(objective)
        if self._row_exchange is not None and rows is not None and is_last:
            self._row_exchange.finish()
        if self._dense_exchange is not None and is_last:
            self._dense_exchange.finish()

    def next_micro_batch(self) -> None:
        """Advance to the next micro-batch of the same step; nothing is updated."""
        self._num_micro_batches += 1
        self._deepspeed.step()

    def step(self, learning_rate: float) -> float:
        """Clip the gradients and update the weights; return the norm before clipping.

        At stage 0 nothing is updated if the norm is not finite; at the other stages DeepSpeed
        updates before it returns the norm.
        """
        self._set_rate(learning_rate)
        self._num_micro_batches = 1
        if self.is_partitioned:
            self._deepspeed.step()
            norm = float(self._deepspeed.get_global_grad_norm())
            if self._table_updates is not None:
                self._table_updates.step(norm)
            return norm
        norm = float(clip_gradients(self.model.parameters(), self._max_norm))
        if math.isfinite(norm):
            self._deepspeed.step()
        return norm

    def step_if_finite(self, learning_rate: float, losses: Tensor) -> Tensor:
        """Clip and update like `step`, but return the norm on the device, without waiting for it.

        Nothing is updated from the first step on in which `losses` or the norm are not finite.
        """
        self._set_rate(learning_rate)
        if self._ranks.world == self._num_micro_batches == 1:
            for table in sparse_tables(self.model):
                if table.grad is not None:
                    table.grad._coalesced_(True)  # the rows of one micro-batch are distinct
        self._num_micro_batches = 1
        norm = clip_gradients(self.model.parameters(), self._max_norm)
        is_finite = torch.isfinite(losses).all() & torch.isfinite(norm)
        self._has_failed = torch.maximum(self._has_failed, (~is_finite).float())
        # PyTorch's fused optimizers update nothing where it is 1.
        self._inner_optimizer.found_inf = self._has_failed  # type: ignore[attr-defined]
        self._deepspeed.step()
        return norm

    def _set_rate(self, learning_rate: float) -> None:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate

    @property
    def _optimizers(self) -> list[torch.optim.Optimizer]:
        own = [] if self._table_updates is None else [self._table_updates.optimizer]
        return [self._inner_optimizer, *own]

    def weights(self, buffers: HostBuffers) -> dict[str, Tensor]:
        """Copy all complete weights to the host, on rank 0; all ranks must call this.

        On the other ranks, which copy nothing, the result is empty.
        """
        with self._gathered_parameters():
            return buffers.copy(self.model.named_parameters()) if self._ranks.is_first else {}

    def optimizer_state(self, buffers: HostBuffers) -> dict[str, Tensor]:
        """Copy the complete optimizer state to the host, on the same conditions as `weights`."""
        states = (
            (f"{name}/{key}", self._get_state(parameter, key))
            for name, parameter in self.model.named_parameters()
            for key in self._state_names
        )
        if self._ranks.is_first:
            return buffers.copy(states)
        if self.is_partitioned:
            deque(states, maxlen=0)  # send this rank's parts
        return {}

    def load_optimizer_state(
        self, read: Callable[[str, Sequence[int]], Tensor] | None, num_steps: int
    ) -> None:
        """Load the optimizer state after `num_steps`; only rank 0 needs to pass `read`."""
        for name, parameter in self.model.named_parameters():
            shape = getattr(parameter, "ds_shape", parameter.shape)
            for key in self._state_names:
                value = read(f"{name}/{key}", shape) if read is not None else torch.empty(shape)
                self._set_state(parameter, key, self._ranks.broadcast(value))
        self.set_step_count(num_steps)

    def set_step_count(self, num_steps: int) -> None:
        """Set the optimizer's step count, which an empty step of DeepSpeed's own may change."""
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                if "step" in state:
                    count = torch.as_tensor(state["step"])
                    state["step"] = torch.full_like(count, float(num_steps))

    def _gathered_parameters(self) -> AbstractContextManager[None]:
        """Gather the complete weights, of which each rank stores a part at ZeRO stage 3."""
        return deepspeed.zero.GatheredParameters(list(self.model.parameters()))  # type: ignore[no-any-return]

    def _allocate_state(self) -> None:
        """Allocate the optimizer state now; Adam would do so only at the first step."""
        flat = [p for group in self._inner_optimizer.param_groups for p in group["params"]]
        for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
            flat = getattr(self._optimizer, name, flat)  # ZeRO 1 and 2; ZeRO 3
        self._allocate(self._inner_optimizer, flat)
        for optimizer in self._optimizers[1:]:
            self._allocate(optimizer, optimizer.param_groups[0]["params"])
        if hasattr(self._optimizer, "_lazy_init_hp_params_optimizer_state"):
            self._optimizer._lazy_init_hp_params_optimizer_state()

    def _allocate(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
    ) -> None:
        for parameter in parameters:
            state = optimizer.state[parameter]
            state.setdefault("step", torch.tensor(0.0, device=parameter.device))
            for key in self._state_names:
                if key not in state:
                    state[key] = torch.zeros_like(parameter.data)

    def _whole_state(self, parameter: nn.Parameter) -> dict[str, Tensor] | None:
        """Return the state of a parameter that is not partitioned."""
        for optimizer in self._optimizers[self.is_partitioned :]:
            if parameter in optimizer.state:
                return optimizer.state[parameter]  # type: ignore[no-any-return]
        return None

    def _get_state(self, parameter: nn.Parameter, key: str) -> Tensor:
        state = self._whole_state(parameter)
        if state is not None:
            return state[key]
        return safe_get_full_optimizer_state(parameter, key)  # type: ignore[no-any-return]

    def _set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        state = self._whole_state(parameter)
        if state is not None:
            state[key].copy_(value)
            return
        if hasattr(parameter, "ds_shape"):
            # Stage 3's setter of complete tensors fails if the last rank's slice is shorter.
            padding = -value.numel() % self._ranks.world
            padded = torch.nn.functional.pad(value.flatten(), (0, padding))
            own_slice = padded.chunk(self._ranks.world)[self._ranks.rank]
            safe_set_local_optimizer_state(parameter, own_slice, key)
        else:
            safe_set_full_optimizer_state(parameter, value, key)
