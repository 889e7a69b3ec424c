"""Feature maps by the names of the command line."""

import numpy as np
import pytest

from kdbirl.data.demonstrations import Demonstrations
from kdbirl.errors import InputError
from kdbirl.features.named import named_features

ROWS = Demonstrations(states=np.arange(6), actions=np.array([0, 1, 0, 1, 0, 1]), n_states=6)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("standardize", None),
        ("Identity", None),
        ("one-hot", None),
        ("onehot_states", tuple(f"state={i}" for i in range(6))),
        ("grid:3x2", ("x", "y")),
        ("grid:3x2 + onehot-actions", ("x", "y", "action=0", "action=1", "action=<other>")),
        ("columns:state", ("state",)),
        ("pca:2", ("pc1", "pc2")),
        ("PCA + onehot-actions", ("pc1", "pc2", "pc3", "action=0", "action=1", "action=<other>")),
    ],
)
def test_names(text, names):
    fitted = named_features(text).fit(ROWS)
    assert fitted(ROWS).shape == (6, len(fitted.names))
    if names is not None:
        assert fitted.names == names


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("onehott", "There are no features called 'onehott'. Did you mean 'onehot'?"),
        ("", "There are no features called ''."),
        ("grid:3+", "There are no features called ''."),
        ("identity:3", "take nothing after the name: write identity."),
        ("grid:0", "grid:0 should give the grid's side"),
        ("grid:2x2x2", "grid:2x2x2 should give the grid's side"),
        ("vae:many", "vae:many should give how many features are learnt, such as vae:3"),
        ("pca:0", "pca:0 should give how many features are learnt"),
        ("columns: ,", "should name at least one column"),
    ],
)
def test_mistakes(text, sentence):
    with pytest.raises(InputError) as problem:
        named_features(text)
    assert sentence in str(problem.value)
