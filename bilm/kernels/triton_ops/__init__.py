"""The operations of `bilm.kernels` in Triton, for GPUs; a module here is imported only when used."""
