"""Graph methods for unseen domains: GSAT, DisC, CEPG, DiSCO."""
