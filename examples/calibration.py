"""Probabilities that can be believed
=====================================

``python examples/calibration.py``

Naive Bayes counts features that say the same as if each said it anew, and is too sure. `calibrate`
divides its log-likelihoods by a temperature, chosen by rows that are held out, and the reliability
curve moves to the diagonal: of the rows with a probability of 70 %, about 70 % are of the class.

The rows are those of scikit-learn's breast cancer data: 569 tumours, 30 features that depend on
each other.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from streamgda import GaussianDiscriminantAnalysis, GaussianNB


def main() -> dict[str, tuple[float, float]]:
    """Print the log-loss of two classifiers before and after calibration, and draw their curves.

    Returns
    -------
    dict of str to tuple of float
        Log-losses of rows that neither the fit nor the calibration has seen.
    """
    X, y = load_breast_cancer(return_X_y=True)
    learnt, tested, y_learnt, y_tested = train_test_split(X, y, test_size=0.5, random_state=0)
    losses, curves = {}, {}
    for name, model in {
        "naive Bayes": GaussianNB(),
        "full covariances": GaussianDiscriminantAnalysis(shrinkage=0.01, standardize=True),
    }.items():
        model.fit(learnt[:200], y_learnt[:200])
        before = model.predict_proba(tested)
        model.calibrate(learnt[200:], y_learnt[200:])
        after = model.predict_proba(tested)
        losses[name] = float(log_loss(y_tested, before)), float(log_loss(y_tested, after))
        print(
            f"{name}: temperature {model.temperature:.1f}, log-loss %.3f, then %.3f" % losses[name]
        )
        curves[name] = before[:, 1]
        curves[f"{name}, calibrated"] = after[:, 1]
    show(y_tested, curves)
    return losses


def show(y: object, curves: dict[str, object]) -> None:
    """Draw reliability curves: shares of the class beside its probabilities."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    from sklearn.calibration import CalibrationDisplay

    _, ax = plt.subplots(figsize=(6, 6), layout="constrained")
    for name, probabilities in curves.items():
        CalibrationDisplay.from_predictions(
            y, probabilities, n_bins=5, strategy="quantile", name=name, ax=ax
        )
    ax.set_title("Breast cancer, rows that were not learnt from")


if __name__ == "__main__":
    main()
