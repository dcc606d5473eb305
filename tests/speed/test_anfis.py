"""The measurement of fuzzy rules on the Mackey-Glass series, made small."""

import numpy as np

from tests.speed.anfis import measured, pairs, series


def test_the_series_is_that_of_the_literature():
    values = series(300)
    np.testing.assert_allclose(
        values[:17], 1.2 * np.exp(-0.1 * np.arange(17)), rtol=1e-6
    )  # nothing comes back yet
    inputs, targets = pairs()
    assert (inputs.shape, targets.shape) == ((1000, 4), (1000,))
    assert np.array_equal(inputs[6:, 3], targets[:-6])
    assert 0.21 < targets.std() < 0.24


def test_a_few_rules_are_better_than_a_polynomial():
    found = measured([8], [30], [1e-8])
    assert found.checked < 0.04
    assert "NDEI" in str(found)
