"""Whether a posterior can be trusted: what the data can say, where they speak, and how well it is calibrated."""
