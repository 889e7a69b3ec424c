"""Reward -> policy, and what a policy is worth: exact in tabular worlds, for many rewards at once."""
