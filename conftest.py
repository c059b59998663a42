"""What pytest leaves out when it looks for doctests."""

from importlib.util import find_spec

# Triton comes with torch for GPUs; without it these kernels cannot be imported.
collect_ignore = []
if find_spec("triton") is None:
    collect_ignore += [
        f"src/icssl/model/triton_{name}.py" for name in ("walks", "eigenmap", "narrow")
    ]
    collect_ignore.append("src/icssl/context/triton_graph.py")
