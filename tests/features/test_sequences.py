"""Texts as padded word codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.errors import InputError
from mtlens.features import (
    EmbeddingTable,
    TokenFeaturizer,
    bucketed_batches,
    by_length,
    load_state,
    restore,
    save_state,
)
from mtlens.features import tokenize as words_of
from mtlens.features.vocabulary import EMPTY, PAD, UNKNOWN


def texts(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


TABLE = EmbeddingTable(("good", "bad", "rare"), np.array([[1, 0], [0, 1], [2, 2]], dtype=np.float32))


def test_rows_are_codes_padded_behind() -> None:
    features = TokenFeaturizer().fit(texts("good film", "film"))
    tokens = features.transform(texts("good bad film", "", None, "film", "film " * 10_000))
    film, good = features.vocabulary.code("film"), features.vocabulary.code("good")
    assert tokens.ids.shape == (5, 256)
    assert tokens.ids[0, :4].tolist() == [good, UNKNOWN, film, PAD]
    assert tokens.ids[1:3, 0].tolist() == [EMPTY, EMPTY]
    assert tokens.lengths.tolist() == [3, 1, 1, 1, 256]
    assert (tokens.ids.dtype, tokens.lengths.dtype) == (np.int32, np.int32)
    assert (tokens.ids[4] == film).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(alphabet="ab c.", max_size=30), min_size=1, max_size=8), st.integers(1, 9))
def test_rows_spell_their_texts(values: list[str], longest: int) -> None:
    features = TokenFeaturizer(max_length=longest).fit(texts(*values))
    tokens = features.transform(texts(*values))
    spelling = ("<pad>", "<unk>", "<sep>", "<empty>", *features.vocabulary.words)
    for text, row, length in zip(values, tokens.ids, tokens.lengths, strict=True):
        assert [spelling[i] for i in row[:length]] == (words_of(text)[:longest] or ["<empty>"])
        assert (row[length:] == PAD).all()


def test_pretrained_vectors_and_words_only_the_table_knows() -> None:
    train = texts("good xyz", "xyz bad xyz")
    features = TokenFeaturizer(vectors=TABLE).fit(train)
    code = features.vocabulary.code
    assert features.vectors is not None and features.vectors.shape == (features.width, 2)
    np.testing.assert_array_equal(features.vectors[[code("good"), code("rare")]], [[1, 0], [2, 2]])
    np.testing.assert_array_equal(features.vectors[UNKNOWN], TABLE.vectors.mean(axis=0))
    assert not features.vectors[[PAD, EMPTY]].any()
    assert features.vectors[code("xyz")].any()
    assert TokenFeaturizer(vectors=TABLE, keep="seen").fit(train).vocabulary.code("rare") == UNKNOWN
    assert TokenFeaturizer(vectors=TABLE, min_count=2).fit(train).vocabulary.words == ("xyz", "good", "bad", "rare")


def test_the_share_of_words_with_vectors_is_said() -> None:
    train = texts("good xyz", "good good bad", "xyz xyz xyz")
    said = TokenFeaturizer(vectors=TABLE).fit(train, rows=[0, 1]).found[0]
    assert said.endswith("word vectors that know 80.0 % of the train texts' words")  # 4 of 5; the last row is no train


def test_changing_test_rows_changes_nothing() -> None:
    first = TokenFeaturizer(vectors=TABLE).fit(texts("good bad", "test words"), rows=[0])
    second = TokenFeaturizer(vectors=TABLE).fit(texts("good bad", "others here"), rows=[0])
    assert first.state().digest() == second.state().digest()
    assert "test" not in first.vocabulary


@pytest.mark.parametrize("vectors", [None, TABLE])
def test_a_saved_featurizer_does_the_same(vectors: EmbeddingTable | None, tmp_path: object) -> None:
    column = texts("good naïve film 😀", "it's bad", "", "\udcff")
    features = TokenFeaturizer(vectors=vectors, max_length=3).fit(column)
    save_state(str(tmp_path), features.state())
    again = restore(load_state(str(tmp_path)))
    assert isinstance(again, TokenFeaturizer)
    np.testing.assert_array_equal(again.transform(column).ids, features.transform(column).ids)
    assert (again.dim, again.found, again.width) == (features.dim, features.found, features.width)
    assert (again.vectors is None) == (vectors is None)


def test_what_is_cut_or_left_out_is_said() -> None:
    table = {"text": texts("a b c", "a"), "age": np.array([1.0, 2.0])}
    from mtlens.tasks import Table

    features = TokenFeaturizer(max_length=2).fit(Table(table, {"text": "text"}))
    assert features.found[1:] == (
        "1 of 2 train texts have more than 2 words; the rest is cut off",
        "this trunk reads texts only; left out: age",
    )


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="max_length=0 must be at least 1"):
        TokenFeaturizer(max_length=0)
    with pytest.raises(InputError, match="keep='all' is not known"):
        TokenFeaturizer(keep="all")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not fitted"):
        TokenFeaturizer().transform(texts("a"))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 20), st.integers(0, 99))
def test_batches_hold_every_row_once(lengths: list[int], batch: int, seed: int) -> None:
    array = np.array(lengths, dtype=np.int64)
    for batches in (by_length(array, batch), bucketed_batches(array, batch, np.random.default_rng(seed), pool=4)):
        assert all(0 < len(b) <= batch for b in batches)
        assert sorted(i for b in batches for i in b.tolist()) == list(range(len(array)))


def test_buckets_pad_less_and_differ_between_epochs() -> None:
    lengths = np.random.default_rng(0).geometric(0.05, size=2000)

    def padded(batches: list[np.ndarray]) -> int:
        return sum(int(lengths[b].max()) * len(b) for b in batches)

    rng = np.random.default_rng(1)
    plain, first, second = (bucketed_batches(lengths, 50, rng, pool=p) for p in (1, 50, 50))
    assert padded(first) < 0.5 * padded(plain)
    assert padded(by_length(lengths, 50)) <= padded(first)
    assert [b.tolist() for b in first] != [b.tolist() for b in second]


def test_taking_rows_trims_the_padding() -> None:
    tokens = TokenFeaturizer().fit(texts("a b c", "a", "")).transform(texts("a b c", "a", ""))
    part = tokens.take([1, 2])
    assert part.ids.shape == (2, 1) and len(tokens) == 3
