"""Feature maps phi(s, a): from rows to numbers. See `FeatureMap` for what every map does."""

from kdbirl.features.base import Column, Concatenated, FeatureMap
from kdbirl.features.latent_diagnosis import LatentDiagnosis, diagnose_latents
from kdbirl.features.maps import Columns, Fixed, GridCoordinates, Identity, Standardize
from kdbirl.features.named import from_spec, function_names
from kdbirl.features.one_hot import OneHot, OneHotActions, OneHotStates
from kdbirl.features.pca import PCA
from kdbirl.features.python_code import Function, Transformer, as_feature_map
from kdbirl.features.vae import VAE

__all__ = [
    "PCA",
    "VAE",
    "Column",
    "Columns",
    "Concatenated",
    "FeatureMap",
    "Fixed",
    "Function",
    "GridCoordinates",
    "Identity",
    "LatentDiagnosis",
    "OneHot",
    "OneHotActions",
    "OneHotStates",
    "Standardize",
    "Transformer",
    "as_feature_map",
    "diagnose_latents",
    "from_spec",
    "function_names",
]
