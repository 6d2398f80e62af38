"""How well transfer was predicted before training: said in words, with every n."""

from __future__ import annotations

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.report.answer import Verdicts
from mtlens.report.page_charts import predicted_points

FEWEST_SOURCES = 3  # of a target, for a rank correlation


def predicted_told(verdicts: Verdicts) -> list[str]:
    """Sign and rank agreement of prediction and measurement.

    Scores are not comparable across targets, so ranks are compared within a target and averaged. The measurement is
    noisy itself: agreement beyond its own reliability cannot be seen.
    """
    points = predicted_points(verdicts)
    told = [
        f"Predicted by cross-validated linear models on the data, before any network was trained ({len(points)} "
        "pairs). The prediction's unit is R2 or Brier skill whatever the task's metric."
    ]
    decided = [row for row in points if row["verdict"] in ("helps", "hurts")]
    if decided:
        right = sum(np.sign(row["predicted"]) == np.sign(row["difference"]) for row in decided)
        told.append(f"Of {len(decided)} pairs proved to help or hurt, {right} were predicted with the right sign.")
    else:
        told.append("No pair is proved to help or hurt, so there is no sign to have predicted.")
    ranks = rank_correlations(verdicts)
    if len(ranks):
        told.append(
            f"Rank correlation within a target: {float(np.mean(ranks)):+.2f} on average over {len(ranks)} targets, "
            "undecided pairs included."
        )
    return told


def rank_correlations(verdicts: Verdicts) -> FloatArray:
    """Spearman's rank correlation of predicted and measured transfer, a value a target with at least three sources."""
    by_target: dict[str, list[tuple[float, float]]] = {}
    for row in predicted_points(verdicts):
        by_target.setdefault(row["target"], []).append((row["predicted"], row["difference"]))
    found = []
    for pairs in by_target.values():
        predicted, measured = (ranked(np.asarray(side)) for side in zip(*pairs, strict=True))
        if len(pairs) >= FEWEST_SOURCES and predicted.std() > 0 and measured.std() > 0:
            found.append(float(np.corrcoef(predicted, measured)[0, 1]))
    return np.asarray(found, np.float64)


def ranked(values: FloatArray) -> FloatArray:
    """Ranks from 1, equal values sharing their mean rank (scipy's own would load half of it for a page).

    >>> ranked(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(ranks[place], np.float64)
