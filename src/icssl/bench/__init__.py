"""Specs, the rows they give, and how what is missing gets run."""
