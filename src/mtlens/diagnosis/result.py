"""What a diagnosis says, as records that print as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from mtlens.errors import unknown

# One line a number: what it means, and what it does not. The table for people and the documentation print these.
MEANING = {
    "predicted": (
        "R2 (Brier skill for classes) a tuned linear model of the target gains by sharing it with the source, by "
        "cross-validation. Not the gain of a network, though it ranks sources for one target."
    ),
    "low, high": "95 % interval of predicted over folds. It knows the rows at hand, not next year's.",
    "verdict": "helps or hurts when that interval leaves out zero, else unsure: the commonest honest answer.",
    "cosine": "between the two tasks' tuned ridge models. Small says little when rows are few.",
    "score": (
        "the paper's covariance similarity: overlap of the inputs' directions. It knows no labels and did not predict "
        "transfer in our checks; a task's score with itself is not 1."
    ),
    "score_normalised": "the same, scaled so that 1 means proportional covariances.",
    "condition_number": "largest over smallest stretch of the inputs. Large: least squares is unstable.",
    "effective_rank": "how many directions the inputs use (exponential of the entropy of their variances).",
    "alone": "R2 (Brier skill) of the target's own tuned ridge, out of fold: what joining is compared with.",
    "capacity": "shared directions that predict held-out rows best. Flat: it does not matter here.",
    "weights": "Algorithm 2 on normalised labels: large for tasks in the shared directions. Pays at scarce capacity.",
}


@dataclass(frozen=True)
class TaskFacts:
    """One task before training. ``balance`` is the share of each class, or mean and standard deviation of the label."""

    task: str
    kind: str
    rows: int
    labelled: int
    width: int
    balance: dict[str, float]
    missing_labels: float
    missing_features: float
    duplicates: int
    leaks: int
    condition_number: float
    effective_rank: float
    alone: float | None
    ridge: float | None


@dataclass(frozen=True)
class Pair:
    """What is known of one ordered pair; None where the two tasks have no common input space or too few rows."""

    target: str
    source: str
    score: float | None
    score_normalised: float | None
    score_centred: float | None
    score_normalised_centred: float | None
    cosine: float | None
    predicted: float | None
    low: float | None
    high: float | None
    p_helps: float | None
    p_hurts: float | None
    verdict: str


@dataclass(frozen=True)
class Capacity:
    """The rank curve: mean out-of-fold R2 over tasks by shared directions; ``flat`` when it hardly matters."""

    suggested: int
    best: int
    flat: bool
    ranks: tuple[int, ...]
    scores: tuple[float, ...]
    errors: tuple[float, ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Weights:
    """SVD task weights of mean one, at the rank they were computed for."""

    rank: int
    method: str
    svd: dict[str, float]


@dataclass(frozen=True)
class Diagnosis:
    """The first answer to "should I train these together?", from closed forms alone."""

    tasks: tuple[TaskFacts, ...]
    pairs: tuple[Pair, ...]
    capacity: Capacity | None
    weights: Weights | None
    warnings: tuple[str, ...]
    found: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.task for task in self.tasks)

    def pair(self, target: str, source: str) -> Pair:
        """One cell."""
        for name in (target, source):
            if name not in self.names:
                raise unknown("task", name, self.names)
        for cell in self.pairs:
            if (cell.target, cell.source) == (target, source):
                return cell
        raise unknown("pair", f"{target} <- {source}", [f"{p.target} <- {p.source}" for p in self.pairs])

    def to_dict(self) -> dict[str, Any]:
        """Plain values; numbers that do not exist (an infinite condition number, say) are None."""
        plain = _plain(asdict(self))
        plain.pop("seconds")  # same data and seed, same bytes
        return dict(plain)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
