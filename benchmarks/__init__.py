"""Benchmarks of kdbirl against Stan, scikit-learn, SciPy, PyKeOps and the machine's own limit. See README.md."""
