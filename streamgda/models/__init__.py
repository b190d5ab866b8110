"""Models: from moments to covariances, to distributions, and to scores of rows."""
