"""Options of a job of three stacks in closed form."""

RIDGE = ["--method", "ridge", "--runs-per-stack", "2", "--device", "cpu", "--quiet"]
N_STACKS = 3
