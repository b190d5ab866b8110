"""scikit-learn's tests of its module `naive_bayes`, run on the classes of streamgda."""

from sklearn_modules import functions_of

_LATER = "partial_fit takes any labels if it is not passed classes"

LEFT_OUT = {
    "test_gnb_partial_fit[float32]": "all answers are float64",
    "test_gnb": _LATER,
    "test_NB_partial_fit_no_first_classes[BernoulliNB]": _LATER,
    "test_NB_partial_fit_no_first_classes[GaussianNB]": _LATER,
    "test_gnb_check_update_with_no_data": "calls _update_mean_variance, a private helper",
    "test_check_alpha": "calls _check_alpha, a private method",
    "test_discretenb_provide_prior[BernoulliNB]": "expects that a fit that fails sets classes_",
}

globals().update(functions_of("test_naive_bayes", LEFT_OUT))
