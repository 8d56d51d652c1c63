"""What learns from rows by itself: the scikit-learn estimator."""
