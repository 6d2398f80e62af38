"""Closed forms on arrays: covariance, similarity, exact linear optima, weights, bounds."""

from mtlens.theory.bounds import Bound as Bound
from mtlens.theory.bounds import relu_transfer_bound as relu_transfer_bound
from mtlens.theory.bounds import transfer_bound as transfer_bound
from mtlens.theory.covariance import condition_number as condition_number
from mtlens.theory.covariance import covariance_similarity as covariance_similarity
from mtlens.theory.covariance import similarity_matrix as similarity_matrix
from mtlens.theory.gram import Gram as Gram
from mtlens.theory.greedy import Greedy as Greedy
from mtlens.theory.greedy import greedy_bound as greedy_bound
from mtlens.theory.linear import linear_optimum as linear_optimum
from mtlens.theory.loss import explained_energy as explained_energy
from mtlens.theory.loss import mtl_loss as mtl_loss
from mtlens.theory.models import sin_angle as sin_angle
from mtlens.theory.models import single_task_optimum as single_task_optimum
from mtlens.theory.optimum import Optimum as Optimum
from mtlens.theory.pair import two_task_optimum as two_task_optimum
from mtlens.theory.relu import relu_moment as relu_moment
from mtlens.theory.relu import relu_objective as relu_objective
from mtlens.theory.shared import equal_covariance_optimum as equal_covariance_optimum
from mtlens.theory.shared import shared_input_optimum as shared_input_optimum
from mtlens.theory.uncertainty import uncertainty_loss as uncertainty_loss
from mtlens.theory.uncertainty import uncertainty_weights_shared as uncertainty_weights_shared
from mtlens.theory.weights import svd_weights as svd_weights
from mtlens.theory.weights import svd_weights_separate as svd_weights_separate
