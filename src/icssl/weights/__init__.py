"""Weights that ship with the package, as safetensors, each with its card."""
