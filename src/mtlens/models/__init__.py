"""The product: fit, save, load, predict; the scikit-learn estimators.

Names are loaded when first used: torch and scikit-learn are heavy, and the command line starts without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtlens.models.fitting import fit as fit
    from mtlens.models.linear import LinearMTL as LinearMTL
    from mtlens.models.model import Model as Model
    from mtlens.models.shared_net import SharedNetClassifier as SharedNetClassifier
    from mtlens.models.shared_net import SharedNetRegressor as SharedNetRegressor
    from mtlens.models.store import load_model as load_model
    from mtlens.models.system import System as System

_FILES = {
    "LinearMTL": "linear",
    "Model": "model",
    "SharedNetClassifier": "shared_net",
    "SharedNetRegressor": "shared_net",
    "System": "system",
    "fit": "fitting",
    "load_model": "store",
}
__all__ = sorted(_FILES)


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'mtlens.models' has no attribute {name!r}")
    return getattr(import_module(f"mtlens.models.{_FILES[name]}"), name)
