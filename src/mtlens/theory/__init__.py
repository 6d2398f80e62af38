"""Closed forms on arrays: covariance, similarity, exact linear optima, weights, bounds."""

from mtlens.theory.covariance import condition_number as condition_number
from mtlens.theory.covariance import covariance_similarity as covariance_similarity
from mtlens.theory.covariance import similarity_matrix as similarity_matrix
from mtlens.theory.gram import Gram as Gram
from mtlens.theory.loss import explained_energy as explained_energy
from mtlens.theory.loss import mtl_loss as mtl_loss
from mtlens.theory.models import sin_angle as sin_angle
from mtlens.theory.models import single_task_optimum as single_task_optimum
from mtlens.theory.optimum import Optimum as Optimum
from mtlens.theory.pair import two_task_optimum as two_task_optimum
from mtlens.theory.shared import equal_covariance_optimum as equal_covariance_optimum
from mtlens.theory.shared import shared_input_optimum as shared_input_optimum
from mtlens.theory.weights import svd_weights as svd_weights
from mtlens.theory.weights import svd_weights_separate as svd_weights_separate
