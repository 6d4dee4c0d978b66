"""The HTML page of a report: one file that needs nothing else."""
