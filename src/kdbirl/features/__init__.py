"""Feature maps phi(s, a): from rows to numbers. See `FeatureMap` for what every map does."""

from kdbirl.features.base import Column, Concatenated, FeatureMap
from kdbirl.features.columns import Columns, GridCoordinates, Identity
from kdbirl.features.one_hot import OneHot, OneHotActions, OneHotStates
from kdbirl.features.python_code import Function, Transformer, as_feature_map
from kdbirl.features.spec import from_spec, function_names
from kdbirl.features.standardize import Standardize

__all__ = [
    "Column",
    "Columns",
    "Concatenated",
    "FeatureMap",
    "Function",
    "GridCoordinates",
    "Identity",
    "OneHot",
    "OneHotActions",
    "OneHotStates",
    "Standardize",
    "Transformer",
    "as_feature_map",
    "from_spec",
    "function_names",
]
