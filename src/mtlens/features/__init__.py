"""Raw columns and texts to numbers, fitted on train rows only and saved with the model."""

from mtlens.features.average import WordAverage as WordAverage
from mtlens.features.encoder import FrozenEncoder as FrozenEncoder
from mtlens.features.featurizer import Featurizer as Featurizer
from mtlens.features.fitting import TEXT_TRUNKS as TEXT_TRUNKS
from mtlens.features.fitting import encode_texts as encode_texts
from mtlens.features.fitting import fit_featurizer as fit_featurizer
from mtlens.features.fitting import form_of as form_of
from mtlens.features.fitting import restore as restore
from mtlens.features.fitting import text_identity as text_identity
from mtlens.features.fitting import transform_tasks as transform_tasks
from mtlens.features.sequences import TokenFeaturizer as TokenFeaturizer
from mtlens.features.sequences import Tokens as Tokens
from mtlens.features.sequences import bucketed_batches as bucketed_batches
from mtlens.features.sequences import by_length as by_length
from mtlens.features.state import State as State
from mtlens.features.state import load_state as load_state
from mtlens.features.state import save_state as save_state
from mtlens.features.tfidf import TfIdf as TfIdf
from mtlens.features.tokens import tokenize as tokenize
from mtlens.features.vectors import EmbeddingTable as EmbeddingTable
from mtlens.features.vocabulary import Vocabulary as Vocabulary
