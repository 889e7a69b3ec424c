"""Compiled programs are forgotten before they use up the memory maps of a long process.

JAX keeps every program that it has compiled, a new one for each new shape of its arguments. Each takes a handful of
memory maps, of which Linux grants a process 65,530 (`vm.max_map_count`): about a hundred fits of different sizes. The
process then dies, with a fault in the compiler or "cannot allocate memory", although there is plenty of memory. So we
look now and then, and drop all programs when half of the maps are in use. Nothing changes but time: what is needed
again is compiled again.
"""

import sys
import time
from functools import cache
from pathlib import Path

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
SHARE = 0.5  # of the limit: a single fit takes hundreds of maps, a whole comparison thousands
SECONDS = 2.0  # between two looks: counting 30,000 maps takes a hundredth of a second

_looked = -SECONDS


def forget_if_many(least_seconds: float = SECONDS) -> bool:
    """Drop JAX's compiled programs if they fill the process; whether it did. Programs that run go on running."""
    global _looked
    now = time.monotonic()
    if now - _looked < least_seconds or "jax" not in sys.modules:
        return False
    _looked = now
    if memory_maps() < SHARE * most_memory_maps():
        return False
    sys.modules["jax"].clear_caches()
    return True


def memory_maps() -> int:
    """How many memory maps this process has; 0 where the system does not tell, as outside Linux."""
    try:
        with MAPS.open("rb") as stream:
            return sum(1 for _ in stream)
    except OSError:
        return 0


@cache
def most_memory_maps() -> int:
    """How many a process may have."""
    try:
        return int(LIMIT.read_text())
    except (OSError, ValueError):
        return sys.maxsize
