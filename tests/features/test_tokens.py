"""The tokenizer, texts as codes, and the vocabulary."""

from __future__ import annotations

import gc
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.errors import InputError
from mtlens.features import EmbeddingTable, Vocabulary, tokenize
from mtlens.features.tokens import _CORPORA, Corpus

# Share of running tokens and of distinct ones that the word vectors hold, in percent: the table of the data's README.
COVERAGE = {
    "text6/mr": (98.8, 88.9),
    "text6/subj": (98.8, 90.3),
    "text6/cr": (98.9, 92.6),
    "text6/mpqa": (99.9, 99.5),
    "text6/trec": (98.6, 93.3),
    "text6/sst_binary": (98.9, 90.7),
    "glue/cola": (99.9, 99.5),
    "glue/mrpc": (97.5, 83.8),
    "glue/rte": (98.2, 88.4),
    "glue/sst2": (98.8, 90.7),
    "glue/qnli": (97.6, 85.0),
}


def column(*texts: str | None) -> np.ndarray:
    return np.array(texts, dtype=object)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n ", []),
        ("Good", ["good"]),
        ("don't can't won't", ["do", "n't", "ca", "n't", "wo", "n't"]),
        ("do n't , it 's", ["do", "n't", ",", "it", "'s"]),
        (
            "they'll we've I'm you'd",
            ["they", "'ll", "we", "'ve", "i", "'m", "you", "'d"],
        ),
        ("the 'quoted' dogs'", ["the", "'", "quoted", "'", "dogs", "'"]),
        (
            "well-made sci-fi, 1,000.50 u.s. mr. x!?",
            ["well-made", "sci-fi", ",", "1,000.50", "u.s.", "mr.", "x", "!", "?"],
        ),
        ("wait...what--yes", ["wait", "...", "what", "--", "yes"]),
        ("ＦＵＬＬ ﬁne it’s", ["full", "fine", "it", "'s"]),
        ("naïve 日本 😀", ["naïve", "日本", "😀"]),
        ("a_b <sep>", ["a", "_", "b", "<", "sep", ">"]),
        ("bad \udcff byte", ["bad", "\ufffd", "byte"]),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert tokenize(text) == words


@given(st.text(max_size=200))
def test_words_are_never_blank_and_tokenizing_them_again_changes_nothing(text: str) -> None:
    words = tokenize(text)
    assert all(word and not any(c.isspace() for c in word) for word in words)
    assert [w for word in words for w in tokenize(word)] == words or "'" in text or "\u2019" in text or "." in text


@pytest.mark.data
def test_coverage_of_the_word_vectors_is_the_measured_one(real_data: Path) -> None:
    table = EmbeddingTable.load(real_data / "glove" / "glove6b_100d_subset.npz")
    short = []
    for name, wanted in COVERAGE.items():
        counts: Counter[str] = Counter()
        with gzip.open(real_data / f"{name}.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
            for line in file.read().split("\n")[1:]:
                for text in line.split("\t")[2:]:
                    counts.update(tokenize(text))
        tokens = 100 * sum(n for word, n in counts.items() if word in table) / sum(counts.values())
        types = 100 * sum(word in table for word in counts) / len(counts)
        if round(tokens, 1) < wanted[0] or round(types, 1) < wanted[1]:
            short.append((name, tokens, types, wanted))
    assert not short


def test_a_corpus_holds_the_words_in_order() -> None:
    texts = column("good film", None, "good good bad", "")
    corpus = Corpus.of(texts)
    spelled = [
        [corpus.words[i] for i in corpus.ids[a:b]] for a, b in zip(corpus.offsets, corpus.offsets[1:], strict=False)
    ]
    assert spelled == [["good", "film"], [], ["good", "good", "bad"], []]
    assert corpus.lengths.tolist() == [2, 0, 3, 0]
    assert dict(zip(corpus.words, corpus.counts().tolist(), strict=True)) == {"good": 3, "film": 1, "bad": 1}
    assert dict(zip(corpus.words, corpus.counts(np.array([0])).tolist(), strict=True)) == {
        "good": 1,
        "film": 1,
        "bad": 0,
    }


def test_a_column_is_tokenized_once_while_it_lives() -> None:
    texts = column("once", "twice")
    assert Corpus.of(texts) is Corpus.of(texts)
    key = (id(texts),)
    assert key in _CORPORA._kept
    del texts
    gc.collect()
    assert key not in _CORPORA._kept


@settings(max_examples=50)
@given(st.lists(st.tuples(*[st.text(alphabet="ab .", max_size=8)] * 3), max_size=6))
def test_joining_columns_lays_their_words_behind_one_another(rows: list[tuple[str, str, str]]) -> None:
    columns = [np.array([row[i] for row in rows], dtype=object) for i in range(3)]
    corpus = Corpus.joined(columns, "<sep>")
    for i, row in enumerate(rows):
        words = [corpus.words[code] for code in corpus.ids[corpus.offsets[i] : corpus.offsets[i + 1]]]
        assert words == [*tokenize(row[0]), "<sep>", *tokenize(row[1]), "<sep>", *tokenize(row[2])]


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"row 1 holds b'\\xff', a bytes, not a text. Decode it first"):
        Corpus.of(column("fine", b"\xff"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="row 0 holds 3, a int, not a text"):
        Corpus.of(column(3))  # type: ignore[arg-type]


def test_a_vocabulary_ranks_words_by_train_use() -> None:
    corpus = Corpus.of(column("b b a", "c c c", "a b"))
    words = Vocabulary.fit([(corpus, np.array([0, 2]))], also=["z", "a"])
    assert words.words == ("b", "a", "z")
    assert words.codes(["b", "c", "z"]).tolist() == [4, 1, 6]
    assert Vocabulary.fit([(corpus, None)], min_count=3).words == ("b", "c")
    assert Vocabulary.fit([(corpus, None)], max_words=1).words == ("b",)
    with pytest.raises(InputError, match="distinct words"):
        Vocabulary(["a", "a"])
