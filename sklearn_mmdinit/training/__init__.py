"""The training of theta0: settings, mini-batches, the loop, checkpoints, recorded GPU steps."""
