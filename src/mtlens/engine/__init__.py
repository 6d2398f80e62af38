"""How training happens: settings in, trained models out, however many."""

from mtlens.engine.result import Trained as Trained
from mtlens.engine.result import TrainedModel as TrainedModel
from mtlens.engine.run import train as train
from mtlens.engine.training import Training as Training
