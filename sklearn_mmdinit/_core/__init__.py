"""What the estimators are made of."""
