"""Demonstrations: the data types, and reading and writing them."""
