"""Other ways to use unlabelled rows, of arrays alone."""
