"""A scikit-learn pipeline on frozen vectors: `python examples/sklearn_pipeline.py`

Classifies short questions by topic with a handful of labelled examples, and compares word counts
with the vectors of english-small.
"""

from __future__ import annotations

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from downstream.estimators import BiLmVectorizer

TRAIN = {
    "cooking": [
        "How long should I boil the potatoes?",
        "Stir the sauce and add a pinch of salt.",
        "The bread needs an hour in the oven.",
        "Chop the onions and fry them in butter.",
    ],
    "software": [
        "The server returns an error when I log in.",
        "Install the package and restart the browser.",
        "This function does not accept a string.",
        "The update deleted my configuration file.",
    ],
    "travel": [
        "The train to the coast leaves at noon.",
        "We crossed the mountains and reached the village.",
        "Is there a hotel near the harbour?",
        "The ship stopped at three islands.",
    ],
}

TEST = [
    ("cooking", "Bake the cake until the top is brown."),
    ("cooking", "Is the soup too hot to taste?"),
    ("cooking", "Mix flour, eggs and milk in a bowl."),
    ("software", "My program crashes when it opens a document."),
    ("software", "Which version of the library supports this option?"),
    ("software", "Click the button to download the application."),
    ("travel", "They sailed along the river to the next town."),
    ("travel", "Our journey over the hills took two days."),
    ("travel", "How far is it from the station to the castle?"),
]


def main() -> None:
    texts = [text for examples in TRAIN.values() for text in examples]
    labels = [label for label, examples in TRAIN.items() for _ in examples]
    test_labels, test_texts = zip(*TEST, strict=True)
    for name, features in (
        ("TF-IDF", TfidfVectorizer()),
        ("english-small", BiLmVectorizer("english-small", mix="average", pooling="mean")),
    ):
        pipeline = make_pipeline(features, LogisticRegression(C=10, max_iter=1000))
        pipeline.fit(texts, labels)
        print(f"{name}: {pipeline.score(test_texts, test_labels):.0%} of {len(TEST)} right")


if __name__ == "__main__":
    main()
