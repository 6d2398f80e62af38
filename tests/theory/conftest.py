"""Makes ``laws`` and ``twins`` importable: test modules here are loaded by path, not as a package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
