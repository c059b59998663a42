"""The three stages of the model, each in a file, and the file that assembles them.

Axis names used in this package: b = episodes, n = points of an episode, m = labelled
points, d = coordinates, k = eigenmap features, c = classes, h = heads, e = width of a
class embedding. Tokens are rows, so every matrix is the transpose of the paper's.
"""
