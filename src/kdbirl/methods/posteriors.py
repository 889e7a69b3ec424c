"""`Posteriors`: the posteriors of many test tasks, by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from kdbirl.errors import InputError, did_you_mean
from kdbirl.likelihood.ckde import pointwise_of
from kdbirl.posterior.result import Posterior
from kdbirl.precision import float64

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, eq=False, repr=False)
class Posteriors(Mapping[str, Posterior]):
    """A mapping from the name of a test task to its `Posterior`.

    lean: the posteriors without the likelihoods of single rows, which are most of a posterior's memory: for 50 rows and
    4,000 draws 1.6 MB of 1.8. `posteriors[name]` computes them.
    """

    model: Any  # the fitted KDBIRL
    lean: Mapping[str, Posterior]

    def __getitem__(self, name: str) -> Posterior:
        """The posterior of a task, whole."""
        return complete(self.model, self.of(name))

    def of(self, name: str) -> Posterior:
        """The posterior of a task, without the likelihoods of its single rows."""
        if name not in self.lean:
            raise InputError(f"There is no test task {name!r}.{did_you_mean(name, self.lean)}")
        return self.lean[name]

    def __contains__(self, name: object) -> bool:
        return name in self.lean

    def __iter__(self) -> Iterator[str]:
        return iter(self.lean)

    def __len__(self) -> int:
        return len(self.lean)

    def __repr__(self) -> str:
        names = ", ".join(list(self.lean)[:4]) + (", ..." if len(self.lean) > 4 else "")
        return f"Posteriors({len(self.lean)} test tasks: {names})"

    @property
    def draws(self) -> Float[np.ndarray, "task chain draw q"]:
        """All draws, where every task has as many."""
        return np.stack([posterior.draws for posterior in self.lean.values()])

    def mean(self) -> Float[np.ndarray, "task q"]:
        """The posterior mean of every task."""
        return np.stack([posterior.mean() for posterior in self.lean.values()])

    def summary(self) -> "polars.DataFrame":
        """`Posterior.summary` of every task, with the task's name before it."""
        import polars

        parts = [p.summary().insert_column(0, polars.lit(name).alias("task")) for name, p in self.lean.items()]
        return polars.concat(parts)

    def table(self) -> "polars.DataFrame":
        """A row for each task: rows, bandwidths, sampler, smallest effective number, largest R-hat, card colours."""
        import polars

        return polars.DataFrame([_row(name, posterior) for name, posterior in self.lean.items()])

    def save(self, path: str | Path) -> None:
        """Write one netCDF file; `load_posteriors` reads it."""
        from kdbirl.methods.posteriors_file import save_posteriors

        save_posteriors(self, Path(path))


def _row(name: str, posterior: Posterior) -> dict[str, Any]:
    checks = posterior.convergence
    least = np.fmin(checks.ess_bulk, checks.ess_tail)
    return {
        "task": name,
        "rows": len(posterior.expert_features),
        "sampler": posterior.sampler,
        "power": posterior.power,
        "r_hat": float(np.max(checks.r_hat)),
        "ess": float(np.min(least)),
        **{part: colour for part, (colour, _) in posterior.report_card().items()},
    }


@float64
def complete(model: Any, posterior: Posterior) -> Posterior:
    """The posterior with the likelihood of each distinct expert row at each draw."""
    if posterior.log_likelihood is not None:
        return posterior
    fitted = model._ready()
    h = np.atleast_1d(np.asarray(posterior.h, dtype=float))
    likelihood = fitted.ckde.likelihood(
        posterior.expert_features, h, float(posterior.h_reward or 0.0), fitted.prior.box, matrix_form=False
    )
    distinct = int(posterior.expert_index.max()) + 1
    table = pointwise_of(likelihood, posterior.flat)[:, :distinct]
    return replace(posterior, log_likelihood=table.reshape(*posterior.draws.shape[:2], distinct))
