"""The interface of scikit-learn: classifiers, regressions, selections, monitors of streams."""
