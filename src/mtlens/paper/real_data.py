"""The paper's claims on real data (Section 3 and Appendix B), so that the book omits none.

What measures each is said, or why nothing does. None is run with the book: the sentence tasks have reproductions of
their own (``sentiment-*``), and the frozen BERT-large and DenseNet-121 results need models mtlens does not carry.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtlens.paper.claims import Claim, Finding, judge, not_measured
from mtlens.paper.outcome import Outcome
from mtlens.paper.registry import Experiment, Reproduction

_SENTENCES = "not run with the book: mtlens reproduce {}"
_GLUE = "not measured: needs BERT-large (frozen) and the full QNLI training set"
_XRAY = "not measured: needs the 112,120 X-ray images and a pre-trained DenseNet-121"
_SPECIAL = (
    (
        "capacity-peak",
        "Joint training of the six sentence tasks peaks at capacity 100, far below the summed 1,205.",
        "Section 3.3, Table 1",
        _SENTENCES.format("sentiment-capacity"),
    ),
    (
        "capacity-models",
        "For MLP, CNN and LSTM the best joint capacity is below the sum of the single-task ones.",
        "Appendix B, Figure 11",
        _SENTENCES.format("sentiment-capacity"),
    ),
    (
        "pairs-accuracy",
        "Alignment raises accuracy on 13 of 15 sentence-task pairs, by up to 4.1 %.",
        "Section 3.3, Figure 6",
        _SENTENCES.format("sentiment-pairs"),
    ),
    (
        "pairs-score",
        "The covariance similarity score rises after alignment on 15 of 15 pairs.",
        "Section 3.3, Figure 6",
        _SENTENCES.format("sentiment-pairs"),
    ),
    (
        "transfer",
        "Alignment improves fine-tuning from SST on four of five tasks, by up to 2.5 %.",
        "Section 3.2, Figure 5b",
        _SENTENCES.format("sentiment-transfer"),
    ),
    (
        "glue-average",
        "Alignment improves on BERT-large by 2.35 GLUE points on average over five tasks.",
        "Section 3.2",
        _GLUE,
    ),
    ("glue-pairs", "Alignment improves on 7 of 10 pairs of GLUE tasks.", "Section 3.2, Figure 5a", _GLUE),
    (
        "xray-unweighted",
        "Algorithm 2 gains 0.4 % AUC over unweighted training on 14 X-ray labels.",
        "Section 3.2",
        _XRAY,
    ),
    ("xray-uncertainty", "Algorithm 2 gains 0.1 % AUC over uncertainty weighting.", "Section 3.2", _XRAY),
    (
        "xray-noise-unweighted",
        "With 20 % of one task's labels noisy, Algorithm 2 gains 1.0 % AUC over unweighted "
        "training, on average over 10 pairs.",
        "Section 3.3 and Appendix B, Figure 12",
        _XRAY,
    ),
    (
        "xray-noise-uncertainty",
        "With 20 % of one task's labels noisy, Algorithm 2 gains 0.4 % AUC over uncertainty weighting.",
        "Section 3.3 and Appendix B, Figure 12",
        _XRAY,
    ),
)


# Table 1, LSTM: accuracy of joint training of SST, MR, CR, SUBJ, MPQA, TREC, and the "Overall" beneath.
_JOINT_COLUMN, _JOINT_OVERALL = (90.8, 96.0, 78.7, 89.5, 87.0, 78.7), 85.1


@dataclass(frozen=True)
class NoSettings:
    """Nothing is run, so there is nothing to set."""

    seeds: int = 0
    seed: int = 0


def arithmetic() -> Finding:
    """What can be checked without data: whether a printed mean is the mean of its column."""
    mean = sum(_JOINT_COLUMN) / len(_JOINT_COLUMN)
    claim = Claim(
        "real-data.overall",
        f'The printed "Overall" accuracy of joint training, {_JOINT_OVERALL}, is the mean of its column.',
        "Section 3.3, Table 1",
        "every",
        0.05,
        f"the six printed accuracies; their mean is {mean:.1f}",
        "distance, points",
    )
    return judge(claim, [abs(mean - _JOINT_OVERALL)])


def claims() -> list[Claim]:
    """The real-data claims; their conditions say what measures them or what is missing."""
    return [Claim(f"real-data.{id}", words, where, "above", 0.0, why) for id, words, where, why in _SPECIAL]


def reproduction() -> Reproduction:
    """The claims as an entry of the book: the table's arithmetic, then those that need data, undecided with n = 0."""
    listed = Experiment(
        name="real-data",
        title="Claims on real data",
        where="Section 3 and Appendix B",
        settings={"listed": NoSettings()},
        run=lambda settings: Outcome([], [], [arithmetic(), *(not_measured(claim) for claim in claims())]),
        about="Listed so that no claim is missing from the book; only a table's arithmetic is checked by it.",
    )
    return Reproduction(listed, "listed", NoSettings(), listed.run(NoSettings()))
