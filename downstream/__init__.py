"""Frozen biLM representations, mixed and put to work on tasks."""
