"""The benchmark on real data: sets, methods, rows and what is made of them."""
