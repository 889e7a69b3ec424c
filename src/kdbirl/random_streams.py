"""Random numbers: every use of a seed has a stream of its own.

Two consumers of `default_rng(seed)` draw the same numbers, and so do `default_rng(seed)` and `default_rng([seed, 0])`:
NumPy fills short entropy up with zeros. `seed + 1` is somebody else's seed. A spawned sequence is neither: its numbers
are independent of those of any seed, of any other use and of any other place.
"""

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from jax import Array


def stream(seed: int, use: str, *place: int) -> np.random.SeedSequence:
    """The seed sequence of one use of a seed, such as "starts"; `place` tells apart chains, tasks or pieces.

    A use is named in one place of the package only (`tests/test_random_streams.py`), and is not renamed: its name
    decides the numbers.
    """
    return np.random.SeedSequence(seed, spawn_key=(crc32(use.encode()), *place))


def stream_key(seed: int, use: str, *place: int) -> "Array":
    """The same as a JAX key, of one kind whatever the user's default is."""
    import jax  # the demonstrations of tabular worlds need none

    words = jax.numpy.asarray(stream(seed, use, *place).generate_state(2))
    return jax.random.wrap_key_data(words, impl="threefry2x32")
