"""`TextClassifier`: a trained head and its frozen biLM, from raw text to a class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from downstream.predictors.texts import TextPredictor
from downstream.settings.progress import Progress


class TextClassifier(TextPredictor):
    """A classifier of raw texts."""

    target = "class"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.description.classes

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the most probable class of each text."""
        return [self.classes[i] for i in self.predict_proba(texts).argmax(axis=1)]

    def predict_proba(
        self, texts: Sequence[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each class (texts, classes), in the order of `classes`.

        A progress bar is shown if `progress` is True, or if it is None and stderr is a terminal.
        """
        parts = list(self._decoded(texts, Progress("classifying", progress)))
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)), np.float32)
