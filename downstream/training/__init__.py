"""Training of heads, experiments, and fine-tuning of a biLM."""
