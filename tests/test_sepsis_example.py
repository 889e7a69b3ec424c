"""examples/sepsis.py runs and finds what it should."""

import importlib.util
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "sepsis.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("sepsis", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    plt.close("all")


def test_the_posterior_is_far_better_than_the_prior(example, tmp_path):
    found = example.infer(tmp_path, quick=True)
    assert found["evd"] < 0.4 * found["prior_evd"]
    assert (tmp_path / "sepsis-posterior.png").is_file()


@pytest.mark.long
def test_the_whole_example(example, tmp_path):
    found = example.main(tmp_path, quick=True)
    assert found["vae_kept"] > 0.99 * found["pca_kept"]
    assert found["collapsed"] == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        f"sepsis-{name}.png" for name in ("latents", "patient", "posterior")
    }
