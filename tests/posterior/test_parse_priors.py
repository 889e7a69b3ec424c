"""Priors as they are written on the command line, and products by name."""

import numpy as np
import pytest

from kdbirl.errors import InputError
from kdbirl.posterior.priors import Normal, Uniform
from kdbirl.posterior.product_prior import Product, parse_priors


@pytest.mark.parametrize(
    ("texts", "written_out"),
    [
        (["uniform:0,1"], "uniform:0,1"),
        ([" Beta: 2, 5 "], "beta:2,5,0,1"),
        (["truncated_normal:0,1,-1,1"], "truncated-normal:0,1,-1,1"),
        (["w_y=normal:0,2", "w_x=laplace:0,1"], "laplace:0,1 x normal:0,2"),
        (["w_y = normal:0,2", "uniform:0,1"], "uniform:0,1 x normal:0,2"),
    ],
)
def test_texts(texts, written_out):
    assert parse_priors(texts).for_parameters(2, ("w_x", "w_y")).describe() == written_out


def test_a_name_may_hold_almost_anything():
    prior = parse_priors(["w(a=1):left=uniform:0,1"]).for_parameters(1, ("w(a=1):left",))
    assert prior.describe() == "uniform:0,1"


def test_by_name_equals_in_order():
    in_order = Product([Uniform(0, 1), Normal(3, 2)]).for_parameters(2, ("w_x", "w_y"))
    by_name = Product.by_name({"w_y": Normal(3, 2)}, otherwise=Uniform(0, 1)).for_parameters(2, ("w_x", "w_y"))
    for first, second in zip(in_order.support, by_name.support, strict=True):
        assert np.array_equal(first, second)
    draws = [prior.sample(np.random.default_rng(0), 5) for prior in (in_order, by_name)]
    assert np.array_equal(*draws)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["w_z=uniform:0,1"], "The prior names 'w_z', which is not among the reward parameters. Did you mean 'w_"),
        (["w_x=uniform:0,1"], "The reward parameter 'w_y' has no prior; add w_y=uniform:0,1"),
        (["w_x=uniform:0,1", "w_x=normal:0,1"], "The reward parameter 'w_x' has two priors"),
        (["uniform:0,1", "normal:0,1"], "There are 2 priors without a parameter's name"),
        (["w_x=uniform"], "The prior 'uniform' should read uniform:low,high with a number for each."),
        (["gamma:1,1"], "There is no prior called 'gamma'."),
    ],
)
def test_mistakes(texts, sentence):
    with pytest.raises(InputError) as problem:
        parse_priors(texts).for_parameters(2, ("w_x", "w_y"))
    assert sentence in str(problem.value)
