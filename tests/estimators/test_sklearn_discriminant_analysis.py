"""scikit-learn's tests of its module `discriminant_analysis`, run on the classes of streamgda."""

from sklearn_modules import functions_of

_CONSTANT = (
    "features that are constant over all rows are left out of the density, with a warning; and "
    "reg_param makes any covariance regular, so that the class needs no more rows than features"
)

LEFT_OUT = {
    "test_lda_dtype_match[float32-float32]": "all answers are float64",
    "test_qda_regularization[svd]": _CONSTANT,
    "test_qda_regularization[eigen]": _CONSTANT,
}

globals().update(functions_of("test_discriminant_analysis", LEFT_OUT))
