"""Random streams named by what they are for, so that no result depends on what else was drawn."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch


def stream(seed: int, *name: Any) -> np.random.Generator:
    """The generator called ``name`` under ``seed``: equal names give equal draws, other names independent ones.

    >>> float(stream(0, "trunk").random()) == float(stream(0, "trunk").random())
    True
    >>> float(stream(0, "trunk").random()) == float(stream(0, "head", "a").random())
    False
    """
    return np.random.Generator(np.random.PCG64(_number(seed, *name)))


def torch_seed(seed: int, *name: Any) -> int:
    """The same idea for code that draws from a torch generator: a 63-bit seed."""
    return _number(seed, *name) & (2**63 - 1)


def torch_stream(seed: int, *name: Any) -> torch.Generator:
    """A CPU torch generator called ``name`` under ``seed``."""
    return torch.Generator().manual_seed(torch_seed(seed, *name))


def _number(seed: int, *name: Any) -> int:
    key = json.dumps([int(seed), *name], default=str).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:16], "little")
