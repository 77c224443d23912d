"""A run behind scikit-learn's fit and predict."""

from mfairfl.estimator.classifier import FairFederatedClassifier

__all__ = ["FairFederatedClassifier"]
