"""Other ways to use unlabelled rows, of arrays alone: starts, and classifiers without a network."""
