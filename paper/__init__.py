"""The paper's figures and claims, put to the test: what `kdbirl reproduce` runs."""
