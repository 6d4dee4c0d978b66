"""Graph methods for unseen domains: GSAT, DisC, CEPG, DiSCO."""

from . import gsat, disc, cepg, disco  # isort: skip # noqa: F401
