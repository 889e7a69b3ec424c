"""The posterior: priors, samplers, and the result that every method gives."""
