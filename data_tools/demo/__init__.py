"""The grammar that generates the demo text."""
