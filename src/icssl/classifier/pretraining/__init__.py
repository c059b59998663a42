"""How the released weights are trained: synthetic tables, the loop, several processes."""
