"""How good is it? What policies learnt from a posterior lose under the true reward."""
