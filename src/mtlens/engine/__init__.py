"""How training happens: settings in, trained models out, however many."""

from mtlens.engine.result import Trained as Trained
from mtlens.engine.result import TrainedModel as TrainedModel
from mtlens.engine.run import train as train
from mtlens.engine.saving import load_trained as load_trained
from mtlens.engine.training import Training as Training
from mtlens.engine.transfer import fine_tune as fine_tune
from mtlens.engine.tuning import Grid as Grid
from mtlens.engine.tuning import Tuned as Tuned
from mtlens.engine.tuning import regularised as regularised
from mtlens.engine.tuning import tune as tune
