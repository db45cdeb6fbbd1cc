"""The tasks of the ELMo paper on small data sets, with and without a biLM."""
