"""Options, input files, sentence splitting, held-out choice and the sentencepiece sample."""
