"""Ridge regression and least squares: scikit-learn, statsmodels, NIST's certified results."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamgda import Ridge, RidgeClassifier
from streamgda.errors import InvalidParameterError

# Checks that call partial_fit, where penalties cannot be compared.
_PARTIAL_FIT = {"check_estimators_partial_fit_n_features", "check_n_features_in_after_fitting"}


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@parametrize_with_checks(
    [
        Ridge(),
        Ridge(0.0),
        Ridge(alphas=[0.1, 1.0], cv=2),
        RidgeClassifier(),
        RidgeClassifier(class_weight="balanced"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    if estimator.alphas is None or check.func.__name__ not in _PARTIAL_FIT:
        check(estimator)
        return
    with pytest.raises(InvalidParameterError, match="by fit alone"):
        check(estimator)
