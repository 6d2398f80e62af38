"""What ``fit`` does with its options before the library takes over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mtlens.errors import InputError, unknown
from mtlens.models.system import FamilyName, System

if TYPE_CHECKING:
    from mtlens.tasks import TaskSet

FAMILIES = ("linear", "trunk", "best")


def checked_family(family: str | None) -> FamilyName | None:
    """The family, refused when it is none."""
    if family is not None and family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    return cast("FamilyName | None", family)


def model_folder(source: str, out: Path | None) -> Path:
    """The model's folder: as said, or beside what it was made from."""
    if out is not None:
        return out
    name = Path(source).name.split(".")[0].removesuffix("-study") or "mtlens"
    return Path(f"{name}-model")


def refuse_run(source: str) -> None:
    """``--advise`` is for data: a study has its own advice."""
    if Path(source).is_dir():
        raise InputError(
            f"--advise is for a SPEC or data file, but {source} is a folder. Leave --advise out: a study's folder "
            "holds its own advice.toml."
        )


def refuse_limit(max_models: int | None) -> None:
    """``--max-models`` is about making an advice; one that is there has its groups."""
    if max_models is not None:
        raise InputError(
            "--max-models limits the groups that --advise may recommend. Add --advise, or write max_models in the SPEC "
            "of a study."
        )


def advised(
    tasks: TaskSet,
    advice: Path | None,
    *,
    family: str | None,
    seed: int | None,
    max_models: int | None = None,
    **options: Any,
) -> System:
    """The system that held-out rows recommend, without a study."""
    from mtlens.study.advice import advise

    if advice is not None:
        raise InputError("--advise makes an advice, --advice names one. Use one of the two.")
    families: tuple[Any, ...] = ("linear", "trunk") if checked_family(family) in (None, "best") else (family,)
    limit = max_models or tasks.settings.get("max_models")
    return advise(tasks, families=families, seed=seed or 0, max_models=limit, **options).system
