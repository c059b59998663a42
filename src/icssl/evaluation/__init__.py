"""Scores of predictions and of representations, with their uncertainty."""
