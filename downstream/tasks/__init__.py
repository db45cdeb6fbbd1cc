"""Tasks: their data, classes and scores."""
