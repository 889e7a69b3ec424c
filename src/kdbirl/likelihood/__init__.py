"""Step 3 of the pipeline: p(s, a | R) from the training tasks, by conditional kernel density estimation."""
