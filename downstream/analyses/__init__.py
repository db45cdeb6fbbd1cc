"""Questions put to a trained biLM, each one command that leaves figures, a page and a picture."""
