"""What is trained: trunks, heads, alignment, and the net that joins them."""

from mtlens.nets.alignment import Alignment as Alignment
from mtlens.nets.dense import Dense as Dense
from mtlens.nets.family import FAMILIES as FAMILIES
from mtlens.nets.family import Family as Family
from mtlens.nets.family import RowSpec as RowSpec
from mtlens.nets.family import family_of as family_of
from mtlens.nets.multitask import MultiTaskNet as MultiTaskNet
from mtlens.nets.text_families import TextFamily as TextFamily
