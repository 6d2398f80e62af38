"""Fixtures every room's tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
