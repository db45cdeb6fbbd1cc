"""The checks of `bilm gpu-check`: functions that compute one row of its table each."""
