"""The operations of `bilm.kernels` in Triton, for GPUs. Only `availability` imports no Triton."""
