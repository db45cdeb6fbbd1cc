"""The biLM as PyTorch modules."""
