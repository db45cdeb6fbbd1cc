"""Options, input files, sentence splitting and the held-out choice."""
