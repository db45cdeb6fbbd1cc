"""The corpus on disk and the batches read from it."""
