"""The product of rows with matrices of their own, which does not read what is multiplied by zero."""

import numpy as np
import pytest

from genepool.networks.row_product import affine


def random_inputs(n, fan_in, fan_out, nonzero):
    """Rows with this many nonzero entries, matrices and biases."""
    rng = np.random.default_rng(0)
    x, w, b = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((n, fan_in), (n, fan_in, fan_out), (n, fan_out))
    )
    for row in x:
        row[rng.permutation(fan_in)[nonzero:]] = 0.0
    return x, w, b


def values(x, w, b):
    y = np.full_like(b, np.nan)
    affine(x, w, b, y)
    return y


@pytest.mark.parametrize("nonzero", [0, 1, 3, 4, 29, 40])
@pytest.mark.parametrize("fan_out", [1, 6, 33])
def test_the_values_are_those_of_the_plain_product(nonzero, fan_out):
    x, w, b = random_inputs(3, 40, fan_out, nonzero)
    expected = np.einsum("ki,kij->kj", x.astype(np.float64), w) + b
    np.testing.assert_allclose(values(x, w, b), expected, atol=1e-5)


def test_rows_that_are_multiplied_by_zero_are_not_read():
    x, w, b = random_inputs(3, 40, 17, nonzero=21)
    expected = values(x, w, b)
    w[x == 0.0] = np.nan
    assert np.array_equal(values(x, w, b), expected)


def test_an_input_that_is_not_a_number_is_not_skipped():
    x, w, b = random_inputs(2, 40, 17, nonzero=20)
    x[0, 5] = np.nan
    assert np.isnan(values(x, w, b)[0]).all()
    assert np.isfinite(values(x, w, b)[1]).all()


@pytest.mark.parametrize("fan_out", [6, 512])
def test_the_bits_are_those_of_plain_sums_four_rows_at_a_time_on_every_processor(fan_out):
    """Fused multiplications, or sums in another order, would change the bits."""
    x, w, b = random_inputs(2, 512, fan_out, nonzero=255)
    expected = b.copy()
    for k in range(2):
        nonzero = np.flatnonzero(x[k])
        for four in np.split(nonzero, range(4, len(nonzero), 4)):
            terms = x[k, four, None] * w[k, four]
            if len(four) == 4:
                expected[k] += (terms[0] + terms[1]) + (terms[2] + terms[3])
            else:
                for term in terms:
                    expected[k] += term
    assert np.array_equal(values(x, w, b), expected)


def test_rows_may_be_a_slice_of_longer_rows():
    x, w, b = random_inputs(3, 40, 17, nonzero=21)
    longer = np.concatenate([x, np.ones((3, 5), np.float32)], axis=1)
    assert np.array_equal(values(longer[:, :40], w, b), values(x, w, b))
