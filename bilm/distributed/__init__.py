"""Processes and ranks: communication, heartbeats, signals, and the DeepSpeed engine."""
