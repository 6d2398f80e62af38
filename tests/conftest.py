"""Fixtures every room's tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["MTLENS_CACHE"] = ""  # tests leave nothing in anybody's cache folder
REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets beside the project; use it with the marker ``data``."""
    if not REAL_DATA.is_dir():
        message = f"the real data sets are not at {REAL_DATA}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return REAL_DATA
