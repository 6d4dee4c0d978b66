"""Options of commands that take no longer than they must."""

RUN = ("--method", "ridge", "--device", "cpu", "--quiet")
STUDY = ("comparison", "--method", "ridge", "--method", "svm", "--seeds", 1, "--device", "cpu", "--quiet")
