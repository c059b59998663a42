"""What pytest leaves out when it looks for doctests."""

from importlib.util import find_spec

# Modules that cannot be imported without an optional package.
NEEDS = {
    "triton": [
        "classifier/graph_triton",
        "model/triton_eigenmap",
        "model/triton_narrow",
        "model/triton_walks",
    ],
    "dash": [
        "app/explore/app",
        "app/explore/layout",
        "app/explore/table_view",
        "app/explore/page_views",
    ],
    "pandas": ["bench/real/cells", "bench/real/comparisons", "bench/real/pages"],
}
collect_ignore = [
    f"src/icssl/{module}.py"
    for package, modules in NEEDS.items()
    if find_spec(package) is None
    for module in modules
]
