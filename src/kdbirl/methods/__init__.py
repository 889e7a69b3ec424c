"""Step 6 of the pipeline: the methods that users call. Each has `fit(bank)` and `posterior(expert, seed=...)`."""
