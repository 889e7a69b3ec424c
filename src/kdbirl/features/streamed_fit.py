"""Feature maps of a streamed bank: fitted on its sample, with means and scales of all rows.

Levels of one-hot features are complete, as the rows that are fitted on have each of them. Maps that learn more than
that (a VAE, PCA, a user's transformer) learn from the sample alone.
"""

from collections.abc import Iterator
from functools import reduce

import numpy as np

from kdbirl.demos.bank_summary import BankSummary
from kdbirl.demos.moments import Moments
from kdbirl.features.base import FeatureMap
from kdbirl.features.columns import Columns
from kdbirl.progress import Progress, Silent


def fit_streamed(feature_map: FeatureMap, summary: BankSummary, progress: Progress | None = None) -> FeatureMap:
    """A fitted map; another pass over the rows is needed only to standardise features that are not plain columns."""
    fitted = feature_map.fit(summary.fit_rows, progress)
    return fitted.with_moments(lambda part: _moments(part, summary, progress or Silent()))


def _moments(part: FeatureMap, summary: BankSummary, progress: Progress) -> Moments:
    """Of the features of a fitted map over all rows."""
    if isinstance(part, Columns):
        known = [summary.moments(part.block_of(name).source, name) for name in part.columns]
        found = [moments for moments in known if moments is not None]
        if len(found) == len(known):
            return _side_by_side(found)
    if summary.exact:
        return Moments.of_weighted(part(summary.rows.demonstrations), summary.weights)
    return reduce(Moments.merged, _of_blocks(part, summary, progress))


def _of_blocks(part: FeatureMap, summary: BankSummary, progress: Progress) -> Iterator[Moments]:
    coded = summary.coded
    for piece in range(coded.n_pieces):
        for block in coded.blocks(piece):
            yield Moments.of(list(part(block.demonstrations).T))
        progress.update("standardising", piece + 1, coded.n_pieces, "pieces of the training table")


def _side_by_side(parts: list[Moments]) -> Moments:
    mean, squares, low, high = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "squares", "low", "high")
    )
    return Moments(parts[0].count, mean, squares, low, high)
