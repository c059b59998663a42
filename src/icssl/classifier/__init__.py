"""Any table in context: views of its columns, graphs of its rows, kernels, and a gate."""
