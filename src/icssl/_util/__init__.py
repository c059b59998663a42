"""Helpers that every room may use: errors, files, random numbers, memory, Ray."""
