"""What a classifier is made of: its labelled rows, their batches, and the net that learns them."""
