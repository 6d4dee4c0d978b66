"""GPU twin of the signed encoder, and the kernels that Triton compiles for it."""
