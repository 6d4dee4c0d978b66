"""The demonstration of ``brio demo``: from simulated hospitals to a new one at which some of the evidence misleads."""

from .steps import BRIO_SETTINGS, METHODS, SEEDS, SIMULATION, run_demo

__all__ = ["BRIO_SETTINGS", "METHODS", "SEEDS", "SIMULATION", "run_demo"]
