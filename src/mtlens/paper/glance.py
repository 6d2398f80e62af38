"""The paper's own sentences on one page: each with its verdict in the printed and in the corrected setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtlens.paper.claims import Finding
from mtlens.paper.registry import Reproduction

SETTINGS = ("printed", "corrected")


@dataclass(frozen=True)
class Sentence:
    """A claim of the paper and its findings by setting; one sentence may be tried at several constants."""

    study: str
    statement: str
    where: str
    findings: dict[str, list[Finding]]

    def told(self, setting: str) -> list[tuple[str, Finding]]:
        """Each finding with the part of its condition that tells it from the others."""
        found = self.findings.get(setting, [])
        pieces = [finding.claim.condition.split(", ") for finding in found]
        common = set(pieces[0]).intersection(*pieces) if pieces else set()
        return [
            (", ".join(p for p in mine if p not in common), finding)
            for mine, finding in zip(pieces, found, strict=True)
        ]


def sentences(results: Sequence[Reproduction]) -> list[Sentence]:
    """The measured claims of the paper itself, without controls and corrected forms, in the order of the book."""
    grouped: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for result in results:
        for finding in result.outcome.findings:
            if finding.n and is_own(finding):
                key = (result.experiment.name, _kind(finding.claim.id))
                grouped.setdefault(key, []).append((result.setting, finding))
    return [_sentence(study, found) for (study, _), found in grouped.items()]


def is_own(finding: Finding) -> bool:
    """Whether the paper makes this claim (the others are controls, corrections, and what is read into it)."""
    where = finding.claim.where
    return not (where.startswith(("correction", "not claimed")) or "control" in where)


def _kind(id: str) -> str:
    """``fig2-linear.corrected.20.same-helps`` without setting and numbers."""
    return ".".join(part for part in id.split(".") if part not in SETTINGS and not part.isdigit())


def _sentence(study: str, found: Sequence[tuple[str, Finding]]) -> Sentence:
    first = found[0][1].claim
    by_setting = {s: [f for setting, f in found if setting == s] for s in dict(found)}
    return Sentence(study, first.statement, first.where, by_setting)
