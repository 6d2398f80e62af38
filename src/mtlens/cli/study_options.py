"""The options that ``study`` and ``plan`` share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Spec = Annotated[
    str, typer.Argument(help="A SPEC (.toml), a data file (.npz, .csv, .tsv, .parquet, or .gz), or an example.")
]
Targets = Annotated[
    str | None, typer.Option(help="Label columns of a data file, or the tasks to keep: a,b.", metavar="A,B")
]
Missing = Annotated[str | None, typer.Option(help="A label value of a data file that means: no label, such as -1.")]
Budget = Annotated[
    str | None, typer.Option(help="A time (10m) or a number of network trainings (500).", metavar="TIME|N")
]
Splits = Annotated[int | None, typer.Option(help="Exactly this many splits; else 5, 10, 20 as needed.", min=2)]
Seed = Annotated[int | None, typer.Option(help="Seed of splits and starts.", min=0)]
Device = Annotated[str | None, typer.Option(help="cpu, or cuda.")]
Trunk = Annotated[str | None, typer.Option(help="linear, relu, mlp, lstm, cnn or average.")]
Capacities = Annotated[str | None, typer.Option(help="Capacities of the shared part.", metavar="N,N")]
Rates = Annotated[str | None, typer.Option("--lr", help="Learning rates.", metavar="X,X")]
Epochs = Annotated[int | None, typer.Option(help="Most epochs; the best one is chosen on validation rows.", min=1)]
Families = Annotated[str | None, typer.Option(help="linear, trunk, or both.", metavar="A,B")]
Methods = Annotated[str | None, typer.Option(help="plain, align, svd, uncertainty, or TorchJD's.", metavar="A,B")]
Pairs = Annotated[int | None, typer.Option(help="Measure this many pairs, the most promising first.", min=0)]
Margin = Annotated[float | None, typer.Option(help="The smallest difference that matters; 0.01 by default.", min=0)]
MaxModels = Annotated[int | None, typer.Option(help="When the advice joins tasks in groups: at most this many.", min=1)]
Small = Annotated[str | None, typer.Option(help="Tasks too small to split: refuse, or drop.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes; one a core by default.", min=1)]
Kind = Annotated[str, typer.Option("--executor", help="local, here, or ray (the 'scale' extra).")]
Out = Annotated[Path | None, typer.Option(help="The run's folder; SPEC's name with '-study' by default.")]
SharedLedger = Annotated[Path | None, typer.Option(help="A ledger that several studies share.")]


def choices_of(**given: Any) -> dict[str, Any]:
    """What was said on the command line, with lists taken apart; what was not said is left to the SPEC."""
    lists = {"capacities": int, "learning_rates": float, "families": str, "methods": str}
    return {
        name: _parts(value, lists[name], name) if name in lists else value
        for name, value in given.items()
        if value is not None
    }


def _parts(text: str, kind: type, name: str) -> tuple[Any, ...]:
    from mtlens.errors import InputError

    try:
        return tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        option = {"learning_rates": "lr"}.get(name, name)
        raise InputError(f"--{option} {text!r}: it needs numbers, separated by commas.") from None


def folder_of(spec: str, out: Path | None) -> Path:
    """The run's folder: as said, or named after the SPEC."""
    return out if out is not None else Path(f"{Path(spec).name.split('.')[0]}-study")
