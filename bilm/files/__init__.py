"""Atomic writing, checked reading, strict JSON, and the base class of JSON schemas."""
