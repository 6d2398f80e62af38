"""mtlens tells which tasks help or hurt each other, how big their shared part should be, and repairs what hurts.

Names are loaded when first used, so ``import mtlens`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The one list of public names: room -> names.
_ROOMS = {
    "engine": ("Grid", "Trained", "Training", "fine_tune", "load_trained", "regularised", "train", "tune"),
    "nets": ("Alignment", "MultiTaskNet"),
    "tasks": ("Splits", "Table", "Task", "TaskSet", "drop_duplicates", "find_duplicates", "read_tasks"),
    "theory": (
        "Bound",
        "Gram",
        "Greedy",
        "Optimum",
        "condition_number",
        "covariance_similarity",
        "equal_covariance_optimum",
        "explained_energy",
        "greedy_bound",
        "linear_optimum",
        "mtl_loss",
        "relu_moment",
        "relu_objective",
        "relu_transfer_bound",
        "shared_input_optimum",
        "similarity_matrix",
        "sin_angle",
        "single_task_optimum",
        "svd_weights",
        "svd_weights_separate",
        "transfer_bound",
        "two_task_optimum",
        "uncertainty_loss",
        "uncertainty_weights_shared",
    ),
    "models": ("LinearMTL", "Model", "SharedNetClassifier", "SharedNetRegressor", "System", "fit", "load_model"),
    "diagnosis": ("Diagnosis", "diagnose"),
    "study": ("Study", "StudyResult"),
    "errors": ("MtlensError",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from mtlens.diagnosis import Diagnosis as Diagnosis
    from mtlens.diagnosis import diagnose as diagnose
    from mtlens.engine import Grid as Grid
    from mtlens.engine import Trained as Trained
    from mtlens.engine import Training as Training
    from mtlens.engine import fine_tune as fine_tune
    from mtlens.engine import load_trained as load_trained
    from mtlens.engine import regularised as regularised
    from mtlens.engine import train as train
    from mtlens.engine import tune as tune
    from mtlens.errors import MtlensError as MtlensError
    from mtlens.models import LinearMTL as LinearMTL
    from mtlens.models import Model as Model
    from mtlens.models import SharedNetClassifier as SharedNetClassifier
    from mtlens.models import SharedNetRegressor as SharedNetRegressor
    from mtlens.models import System as System
    from mtlens.models import fit as fit
    from mtlens.models import load_model as load_model
    from mtlens.nets import Alignment as Alignment
    from mtlens.nets import MultiTaskNet as MultiTaskNet
    from mtlens.study import Study as Study
    from mtlens.study import StudyResult as StudyResult
    from mtlens.tasks import Splits as Splits
    from mtlens.tasks import Table as Table
    from mtlens.tasks import Task as Task
    from mtlens.tasks import TaskSet as TaskSet
    from mtlens.tasks import drop_duplicates as drop_duplicates
    from mtlens.tasks import find_duplicates as find_duplicates
    from mtlens.tasks import read_tasks as read_tasks
    from mtlens.theory import Bound as Bound
    from mtlens.theory import Gram as Gram
    from mtlens.theory import Greedy as Greedy
    from mtlens.theory import Optimum as Optimum
    from mtlens.theory import condition_number as condition_number
    from mtlens.theory import covariance_similarity as covariance_similarity
    from mtlens.theory import equal_covariance_optimum as equal_covariance_optimum
    from mtlens.theory import explained_energy as explained_energy
    from mtlens.theory import greedy_bound as greedy_bound
    from mtlens.theory import linear_optimum as linear_optimum
    from mtlens.theory import mtl_loss as mtl_loss
    from mtlens.theory import relu_moment as relu_moment
    from mtlens.theory import relu_objective as relu_objective
    from mtlens.theory import relu_transfer_bound as relu_transfer_bound
    from mtlens.theory import shared_input_optimum as shared_input_optimum
    from mtlens.theory import similarity_matrix as similarity_matrix
    from mtlens.theory import sin_angle as sin_angle
    from mtlens.theory import single_task_optimum as single_task_optimum
    from mtlens.theory import svd_weights as svd_weights
    from mtlens.theory import svd_weights_separate as svd_weights_separate
    from mtlens.theory import transfer_bound as transfer_bound
    from mtlens.theory import two_task_optimum as two_task_optimum
    from mtlens.theory import uncertainty_loss as uncertainty_loss
    from mtlens.theory import uncertainty_weights_shared as uncertainty_weights_shared


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mtlens' has no attribute {name!r}")
    return getattr(import_module(f"mtlens.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
