"""A feature map that has learnt already and shall not learn again."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kdbirl.demos.data import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.base import SILENT, Column, FeatureMap, Features
from kdbirl.progress import Progress


@dataclass(frozen=True)
class Fixed(FeatureMap):
    """`Fixed(phi.fit(rollouts))`: `fit` keeps phi as it is, where any other map would learn again from the new rows.

    A phi in which rewards w . phi(s, a) are expressed must be one and the same for the simulator, the training tasks
    and the expert: learn it once, from random rollouts say, and give `Fixed(phi)` to everything that follows.
    """

    kind: ClassVar[str] = "fixed"
    inner: Any

    def __post_init__(self) -> None:
        if not isinstance(self.inner, FeatureMap):
            raise InputError(
                f"Fixed takes a fitted feature map, such as Fixed(kb.VAE().fit(rows)), not {self.inner!r}."
            )
        if not self.inner.is_fitted:
            raise InputError(
                f"Fixed takes a feature map that is fitted, and this {type(self.inner).__name__} is not: give what its "
                "fit(rows) returns."
            )

    @property
    def is_fitted(self) -> bool:
        """Always."""
        return True

    def _fit(self, rows: Demonstrations, progress: Progress = SILENT) -> "Fixed":
        self.inner._apply(rows.take(slice(1)))  # rows of another kind are refused here, before anything is computed
        return self

    def _apply(self, rows: Demonstrations) -> Features:
        features: Features = self.inner._apply(rows)
        return features

    def _columns(self) -> tuple[Column, ...]:
        columns: tuple[Column, ...] = self.inner._columns()
        return columns
