"""Training: configurations, the loss, many models at once, checkpoints."""
