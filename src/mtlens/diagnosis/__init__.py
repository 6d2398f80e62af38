"""Before training: predicted transfer, capacity, weights and warnings, from closed forms alone."""

from mtlens.diagnosis.examination import diagnose as diagnose
from mtlens.diagnosis.result import Capacity as Capacity
from mtlens.diagnosis.result import Diagnosis as Diagnosis
from mtlens.diagnosis.result import Pair as Pair
from mtlens.diagnosis.result import TaskFacts as TaskFacts
from mtlens.diagnosis.result import Weights as Weights
