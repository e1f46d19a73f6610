"""What every other file of the package may import."""
