"""`Posteriors`: the posteriors of many test tasks, by name."""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from kdbirl._jax import float64
from kdbirl.archive import read_hdf5, whole_or_not_at_all
from kdbirl.errors import MEMORY_BYTES, FileProblem, InputError, did_you_mean
from kdbirl.likelihood.ckde import pointwise_of
from kdbirl.posterior.result import Posterior
from kdbirl.posterior.storage import TEXT_FIELDS, features_of, spec_of

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


# The posteriors of many test tasks as one netCDF file; a task is read alone, whatever the number of the others.
#
# Draws are one array (task, chain, draw, parameter), which ArviZ and xarray open; expert rows of all tasks stand below
# each other. Everything else is JSON, in which parts that tasks share are written once. No pickle.

FORMAT = 1
EXPECTED = "expected the posteriors of many test tasks"
ROWS = ("expert_features", "expert_index", "expert_episodes")  # an entry for each expert row, all tasks together
SHARED = ("prior_draws", "task_rewards", "task_rows")  # the same for all tasks


def save_posteriors(posteriors: Posteriors, path: Path) -> None:
    """Write all tasks whole or not at all."""
    import xarray

    lean = _evened(list(posteriors.lean.values()))
    names, first = list(posteriors.lean), lean[0]
    sample = ("task", "chain", "draw")
    variables: dict[str, Any] = {
        "reward": ((*sample, "parameter"), np.stack([p.draws for p in lean])),
        **{name: (sample, np.stack([p.sample_stats[name] for p in lean])) for name in _common_statistics(lean)},
        "expert_features": (("row", "feature"), np.concatenate([p.expert_features for p in lean])),
        "expert_index": (("row",), np.concatenate([p.expert_index for p in lean])),
        "expert_episodes": (("row",), np.concatenate([p.expert_episodes for p in lean])),
        "prior_draws": (("prior_draw", "parameter"), first.prior_draws),
        "task_rewards": (("training_task", "parameter"), first.task_rewards),
        "task_rows": (("training_task",), first.task_rows),
        "rows_of_task": (("task",), np.array([len(p.expert_features) for p in lean])),
        "record": (("byte",), np.frombuffer(zlib.compress(_record(names, lean).encode()), dtype=np.uint8)),
    }
    dataset = xarray.Dataset(variables, attrs={"inference_library": "kdbirl", "kdbirl_many_format": FORMAT})
    with whole_or_not_at_all(path) as unfinished:
        dataset.to_netcdf(unfinished, engine="h5netcdf", encoding={name: {"_FillValue": None} for name in variables})


def _common_statistics(lean: list[Posterior]) -> list[str]:
    """Those that every task has: a task that another sampler took over has others."""
    return [name for name in lean[0].sample_stats if all(name in p.sample_stats for p in lean)]


def _evened(lean: list[Posterior]) -> list[Posterior]:
    """The posteriors with the statistics that all have, and as many draws as the one that has fewest."""
    chains, draws = (min(p.draws.shape[axis] for p in lean) for axis in (0, 1))
    names = _common_statistics(lean)

    def evened(posterior: Posterior) -> Posterior:
        kept = np.linspace(0, posterior.draws.shape[1] - 1, draws).astype(int)  # evenly: neighbours are dependent
        stats = {name: posterior.sample_stats[name][:chains, kept] for name in names}
        return replace(posterior, draws=posterior.draws[:chains, kept], sample_stats=stats, log_likelihood=None)

    return [evened(posterior) for posterior in lean]


def _record(names: list[str], lean: list[Posterior]) -> str:
    """JSON of everything that is no array; parts are numbered texts, so that what tasks share is written once."""
    parts: dict[str, int] = {}

    def numbered(value: Any) -> int:
        return parts.setdefault(json.dumps(value), len(parts))

    def of_task(posterior: Posterior) -> dict[str, Any]:
        settings = dict(posterior.settings)
        diagnosis = settings.pop("diagnosis", {})
        fields = {name: numbered(getattr(posterior, name)) for name in TEXT_FIELDS if name != "settings"}
        return {
            "fields": fields,
            "settings": {name: numbered(value) for name, value in settings.items()},
            "diagnosis": {name: numbered(value) for name, value in diagnosis.items()},
            "fingerprint": posterior.fingerprint(),
        }

    tasks = {name: of_task(posterior) for name, posterior in zip(names, lean, strict=True)}
    return json.dumps({"tasks": tasks, "features": spec_of(lean[0].reward_features), "parts": list(parts)})


def load_posteriors(path: str | Path, model: Any) -> Posteriors:
    """The posteriors that `Posteriors.save` wrote, with their model; a task is read when it is asked for."""
    return Posteriors(model, StoredPosteriors(Path(path)))


class StoredPosteriors(Mapping[str, Posterior]):
    """The posteriors in a file, without the likelihoods of single rows."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileProblem(f"{path} does not exist; {EXPECTED}.")
        self.path = path
        read_hdf5(path, EXPECTED, "netCDF", arrays_too=False)  # a damaged file must not hang or break this process
        try:
            with self._open() as file:
                if np.asarray(file.attrs["kdbirl_many_format"]).item() > FORMAT:
                    raise FileProblem(f"{path} was written by a newer kdbirl; install that one.")
                self._rows = np.asarray(file["rows_of_task"])
                self._content = json.loads(_unpacked(np.asarray(file["record"]).tobytes(), path))
                dict(self._content["tasks"])
        except FileProblem:
            raise
        except Exception as error:  # a file may hold anything
            raise FileProblem(f"{path} is damaged, or not the posteriors of many test tasks.") from error

    def _open(self) -> Any:
        import h5py

        return h5py.File(self.path, "r")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self._content["tasks"])}

    def _part(self, number: int) -> Any:
        return json.loads(self._content["parts"][number])

    def __iter__(self) -> Iterator[str]:
        return iter(self._content["tasks"])

    def __len__(self) -> int:
        return len(self._content["tasks"])

    def __getitem__(self, name: str) -> Posterior:
        place = self._places[name]
        try:
            return self._read(name, place, self._content["tasks"][name])
        except FileProblem:
            raise
        except Exception as error:  # as above
            raise FileProblem(f"{self.path} is damaged: task {name[:80]!r} cannot be read.") from error

    def _read(self, name: str, place: int, record: dict[str, Any]) -> Posterior:
        end = int(self._rows[: place + 1].sum())
        own = slice(end - int(self._rows[place]), end)
        with self._open() as file:
            arrays: dict[str, Any] = {key: np.asarray(file[key][own]) for key in ROWS}
            arrays |= {key: np.asarray(file[key]) for key in SHARED}
            draws, shape = np.asarray(file["reward"][place]), file["reward"].shape[:3]
            stats = {
                key: np.asarray(file[key][place]) for key in file if file[key].shape == shape and file[key].ndim == 3
            }
        fields = {key: self._part(number) for key, number in record["fields"].items()}
        fields |= {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        fields["cards"] = {key: tuple(card) for key, card in fields["cards"].items()}
        settings = {key: self._part(number) for key, number in record["settings"].items()}
        settings["diagnosis"] = {key: self._part(number) for key, number in record["diagnosis"].items()}
        features = features_of(self._content["features"], None)
        posterior = Posterior(
            draws=draws, sample_stats=stats, settings=settings, reward_features=features, **arrays, **fields
        )
        if posterior.fingerprint() != record["fingerprint"]:
            raise FileProblem(f"{self.path} is damaged: the content of task {name!r} does not match its checksum.")
        return posterior


def _unpacked(data: bytes, path: Path) -> bytes:
    """The text in a packed record, no longer than the limit."""
    text = zlib.decompressobj().decompress(data, MEMORY_BYTES.value + 1)
    MEMORY_BYTES.check(len(text), f"{path} unpacks to too much")
    return text
