"""TF-IDF against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from mtlens.errors import InputError
from mtlens.features import Featurizer, TfIdf, restore, tokenize
from mtlens.tasks import Table


def texts(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(60)] + ["don't", "well-made", "!"])
    chance = 1 / np.arange(1, len(words) + 1)
    drawn = [" ".join(rng.choice(words, rng.integers(0, 15), p=chance / chance.sum())) for _ in range(rows)]
    return np.array(drawn, dtype=object)


@pytest.mark.parametrize("sublinear", [False, True])
def test_equals_scikit_learn(sublinear: bool) -> None:
    column = texts(120, 0)
    ours = TfIdf(max_features=10_000, min_texts=3, sublinear=sublinear).fit([([column], None)])
    theirs = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, lowercase=False, min_df=3, sublinear_tf=sublinear)
    wanted = theirs.fit_transform(column).toarray()
    assert list(ours.words) == sorted(theirs.get_feature_names_out())
    order = np.argsort(theirs.get_feature_names_out())
    np.testing.assert_allclose(ours.encode([column]), wanted[:, order], atol=1e-12)


def test_equals_scikit_learn_over_parts_rows_and_columns() -> None:
    a, b, c = texts(80, 1), texts(50, 2), texts(50, 3)
    rows = np.arange(0, 80, 2)
    ours = TfIdf(max_features=25, min_texts=1).fit([([a], rows), ([b, c], None)])
    corpus = [*a[rows], *(f"{x}\n{y}" for x, y in zip(b, c, strict=True))]
    theirs = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, lowercase=False, vocabulary=ours.words)
    wanted = theirs.fit(corpus).transform(a).toarray()
    np.testing.assert_allclose(ours.encode([a]), wanted, atol=1e-12)
    assert ours.width == 25


def test_empty_long_and_unseen_texts() -> None:
    tfidf = TfIdf(min_texts=1).fit([([np.array(["a b", "b c"], dtype=object)], None)])
    got = tfidf.encode([np.array(["", "b", "b " * 10_000, "xyz", None], dtype=object)])
    np.testing.assert_allclose(got[1], [0, 1, 0])
    np.testing.assert_allclose(got[2], got[1])
    assert not got[[0, 3, 4]].any()


def test_no_word_left_is_refused() -> None:
    with pytest.raises(InputError, match="no word occurs in 2 of the 2 train texts"):
        TfIdf().fit([([np.array(["one", "two"], dtype=object)], None)])
    with pytest.raises(InputError, match="at least 1"):
        TfIdf(max_features=0)


def test_state_round_trip() -> None:
    column = texts(40, 4)
    tfidf = TfIdf(max_features=20, sublinear=True).fit([([column], None)])
    again = TfIdf.from_state(tfidf.state())
    np.testing.assert_array_equal(again.encode([column]), tfidf.encode([column]))


def test_a_pair_has_no_more_columns_than_one_text() -> None:
    """Its four parts share the columns: closed forms over four thousand would take hours."""
    columns = Table({"a": texts(80, 1), "b": texts(80, 2)}, {"a": "text", "b": "text"})
    features = Featurizer(text=TfIdf(max_features=40, min_texts=1), scale=False).fit(columns)
    assert features.width == 40 == len(features.names)
    assert features.found == ("text: TF-IDF of the 10 most frequent words, pairs combined",)
    again = features.fit(columns)
    u, v = (TfIdf(max_features=10, min_texts=1).fit([([columns["a"], columns["b"]], None)]) for _ in range(2))
    parts = u.encode([columns["a"]]), v.encode([columns["b"]])
    wanted = np.concatenate([*parts, abs(parts[0] - parts[1]), parts[0] * parts[1]], axis=1)
    np.testing.assert_allclose(again.transform(columns), wanted, atol=1e-12)
    restored = restore(features.state())
    np.testing.assert_array_equal(restored.transform(columns), features.transform(columns))
    joined = Featurizer(text=TfIdf(max_features=40, min_texts=1), pairs="joined").fit(columns)
    assert joined.width == 40
