"""The model's operations: a plain PyTorch reference of each, and faster implementations."""
