"""The trainable part: mixes of layers, encoders and classifiers."""
