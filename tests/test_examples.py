"""The example scripts run as they stand in the repository, reduced to a minute's tenth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_a_thousand_trainings_reduced(tmp_path: Path) -> None:
    source = (EXAMPLES / "thousand_trainings.py").read_text("utf-8")
    lines = [line for line in source.splitlines() if line and not line.startswith(('"""', "from", "import"))]
    assert len(lines) <= 10
    for whole, reduced in (("range(25)", "range(1)"), ("[2, 5, 10, 20, 50]", "[2, 5]"), ("epochs=10", "epochs=2")):
        assert whole in source
        source = source.replace(whole, reduced)
    script = tmp_path / "reduced.py"
    script.write_text(source, "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.startswith("16 trainings, 16 finished; best: Training(")
    assert not done.stderr
