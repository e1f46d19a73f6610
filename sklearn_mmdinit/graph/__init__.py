"""Which rows of unlabelled data are near each other, and random walks among them."""
