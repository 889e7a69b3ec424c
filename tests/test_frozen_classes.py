"""Configuration and fitted things are frozen: nothing changes under a sampler, a cache key or a fingerprint."""

import dataclasses
import importlib
import pkgutil

import pytest

import kdbirl.likelihood
import kdbirl.posterior


@pytest.mark.parametrize("folder", [kdbirl.likelihood, kdbirl.posterior], ids=lambda folder: folder.__name__)
def test_dataclasses_are_frozen(folder) -> None:  # type: ignore[no-untyped-def]
    modules = [
        importlib.import_module(found.name) for found in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}.")
    ]
    classes = [
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and dataclasses.is_dataclass(thing) and thing.__module__ == module.__name__
    ]
    assert len(classes) > 8
    thawed = {f"{one.__module__}.{one.__name__}" for one in classes if not one.__dataclass_params__.frozen}
    assert thawed == set()
