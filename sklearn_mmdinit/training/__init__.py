"""The training of theta0."""
