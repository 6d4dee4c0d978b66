"""GPU twin of the scorer of edges, and the kernels that Triton compiles for it."""
