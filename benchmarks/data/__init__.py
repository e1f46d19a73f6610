"""The images and their labels: where they come from, how they are checked, how they are scaled."""
