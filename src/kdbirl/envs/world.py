"""A world, in a table or simulated: what its name, its rewards and its demonstrations have in common."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class World(Protocol):
    """A `TabularMDP` or a simulator; its rewards are weights of the features."""

    @property
    def feature_names(self) -> tuple[str, ...]: ...

    @property
    def n_actions(self) -> int: ...

    @property
    def discount(self) -> float: ...

    def describe(self) -> dict[str, Any]:
        """What defines the world, as JSON, for a record."""
