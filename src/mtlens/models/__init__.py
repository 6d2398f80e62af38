"""The product: fit, save, load, predict; the scikit-learn estimators."""

from mtlens.models.linear import LinearMTL as LinearMTL
from mtlens.models.shared_net import SharedNetClassifier as SharedNetClassifier
from mtlens.models.shared_net import SharedNetRegressor as SharedNetRegressor
