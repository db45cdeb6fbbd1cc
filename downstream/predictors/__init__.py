"""Trained heads with their frozen biLM: from raw text to predictions."""
