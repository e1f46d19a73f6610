"""What is computed, apart from the estimators that ask for it."""
