"""What a user asks `kdbirl reproduce` for."""

import hashlib
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kdbirl.errors import InputError, did_you_mean
from kdbirl.experiments.ledger import VARIANTS

FEWEST = 2  # seeds: an interval needs a spread


@dataclass(frozen=True)
class Request:
    """quick: small sizes that decide nothing. seeds: how many, None for the experiment's own. variants: of `VARIANTS`,
    each once, in that order."""

    quick: bool = False
    seeds: int | None = None
    variants: tuple[str, ...] = VARIANTS

    def __post_init__(self) -> None:
        for variant in self.variants:
            if variant not in VARIANTS:
                raise InputError(f"There is no variant called {variant!r}.{did_you_mean(variant, VARIANTS)}")
        if self.seeds is not None and self.seeds < FEWEST:
            raise InputError(f"seeds={self.seeds} should be at least {FEWEST}: an interval needs a spread.")
        object.__setattr__(self, "variants", tuple(v for v in VARIANTS if v in self.variants) or VARIANTS)

    def count(self, full: int, quick: int) -> int:
        """The number of seeds: as asked, or the experiment's own."""
        return self.seeds if self.seeds is not None else (quick if self.quick else full)

    def size(self, full: Any, quick: Any) -> Any:
        """Whichever of the two is meant."""
        return quick if self.quick else full


@cache
def checkout() -> str:
    """The commit, and a hash of what was changed since: results of other code are not read. Empty without Git."""
    here = Path(__file__).parent
    asked = (["rev-parse", "HEAD"], ["diff", "HEAD"])
    try:
        found = [subprocess.run(["git", *words], cwd=here, capture_output=True, check=True).stdout for words in asked]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{found[0].decode().strip()} {hashlib.sha256(found[1]).hexdigest()}"
