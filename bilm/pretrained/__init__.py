"""Models on disk: model directories, published weight files, export and transfer."""
