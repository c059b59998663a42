"""What pytest leaves out when it looks for doctests."""

from importlib.util import find_spec

# Modules that cannot be imported without an optional package.
NEEDS = {
    "triton": [
        "context/triton_graph",
        "model/triton_eigenmap",
        "model/triton_narrow",
        "model/triton_walks",
    ],
    "dash": ["explore/app", "explore/layout", "explore/table_view", "explore/views"],
    "pandas": ["real/pages", "real/summary"],
}
collect_ignore = [
    f"src/icssl/{module}.py"
    for package, modules in NEEDS.items()
    if find_spec(package) is None
    for module in modules
]
