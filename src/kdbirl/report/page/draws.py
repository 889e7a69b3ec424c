"""Draws for the inside of a page: as many as an eye can use, two bytes each."""

import base64
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from kdbirl.posterior.result import Posterior

MOST_DRAWS, MOST_NUMBERS = 3000, 400_000  # 1 MB at most


def thinned(posterior: Posterior) -> Float[np.ndarray, "draws q"]:
    """Every s-th draw of each chain, with s as small as the two limits allow."""
    flat = posterior.flat
    most = max(100, min(MOST_DRAWS, MOST_NUMBERS // flat.shape[1]))
    step = math.ceil(len(flat) / most)
    return flat[::step]


def packed(draws: Float[np.ndarray, "draws q"]) -> list[dict[str, Any]]:
    """Each parameter as 16-bit steps between its least and its largest draw, in base64."""
    return [_column(np.asarray(column)) for column in draws.T]


def _column(values: Float[np.ndarray, " draws"]) -> dict[str, Any]:
    low, high = float(values.min()), float(values.max())
    step = (high - low) / 65535 or 1.0
    whole = np.round((values - low) / step).astype("<u2")
    return {"low": low, "step": step, "packed": base64.b64encode(whole.tobytes()).decode()}


def sentence(posterior: Posterior, shown: int) -> str:
    """How many draws the page holds, and what the numbers are made from."""
    total = len(posterior.flat)
    if shown == total:
        return f"All {total:,} draws are in this page."
    return (
        f"Histograms and numbers are made from all {total:,} draws. {shown:,} of them, evenly spaced, are in this page "
        "for brushing: numbers under a brush are made from those."
    )
