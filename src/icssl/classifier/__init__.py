"""The classifier for tables; ``model.py`` is the map of its files."""
