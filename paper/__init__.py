"""The paper's figures and claims by experiment: what `python -m paper` runs, from a checkout; never installed."""
