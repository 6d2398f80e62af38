"""Word-vector files, lookups and averages."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

from mtlens.errors import FileError, InputError
from mtlens.features import EmbeddingTable, State, WordAverage


@pytest.fixture
def table() -> EmbeddingTable:
    words = ("good", "bad", "cliche", "re", "use")
    return EmbeddingTable(words, np.arange(10, dtype=np.float32).reshape(5, 2))


def test_text_files_of_every_flavour(tmp_path: Path) -> None:
    glove = "the 1 2 3\nnew york 4 5 6\nthe 9 9 9\n\u2028x 7 8 9\n"
    (tmp_path / "plain.txt").write_text(glove, encoding="utf-8")
    (tmp_path / "headed.txt").write_text("3 3\n" + glove.replace("new york", "new_york"), encoding="utf-8")
    with gzip.open(tmp_path / "packed.txt.gz", "wt", encoding="utf-8") as file:
        file.write(glove)
    plain, headed, packed = (EmbeddingTable.load(tmp_path / n) for n in ("plain.txt", "headed.txt", "packed.txt.gz"))
    assert headed.words == ("the", "new_york", "\u2028x")
    assert packed.words == plain.words == ("the", "new york", "\u2028x")
    np.testing.assert_array_equal(headed.vectors, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    np.testing.assert_array_equal(plain.vectors, headed.vectors)


def test_marks_and_tabs_are_no_part_of_words(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfgood\t1\t2\r\nbad\t3\t4\r\n")
    table = EmbeddingTable.load(tmp_path / "t.txt")
    assert table.words == ("good", "bad") and table.vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a", "b", "a", "c"], np.ones((2, 3)), r"found 4 words and vectors of shape \(2, 3\)"),
        (["a", "a"], np.ones((5, 3)), r"found 2 words and vectors of shape \(5, 3\)"),
        (["a"], np.float64(1), r"found 1 words and vectors of shape \(\)"),
        (["a"], np.full((1, 2), 1e300), "the vector of 'a' is not finite"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, words: list[str], vectors: object, message: str) -> None:
    np.savez(tmp_path / "t.npz", words=np.array(words), vectors=vectors)
    with pytest.raises((FileError, InputError), match=message):
        EmbeddingTable.load(tmp_path / "t.npz")


def test_an_npy_file_by_another_name_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "t.npz").open("wb") as file:
        np.save(file, np.ones((2, 3)))
    with pytest.raises(FileError, match=r"t.npz holds one array and no names"):
        EmbeddingTable.load(tmp_path / "t.npz")


def test_npz_equals_text(tmp_path: Path, table: EmbeddingTable) -> None:
    np.savez(tmp_path / "t.npz", words=np.array(table.words), vectors=table.vectors.astype(np.float16))
    loaded = EmbeddingTable.load(tmp_path / "t.npz")
    assert loaded.words == table.words
    assert loaded.vectors.dtype == np.float32
    np.testing.assert_array_equal(loaded.vectors, table.vectors)


def write_pickle(path: Path) -> None:
    np.savez(path, words=np.array(["a", None], dtype=object), vectors=np.ones((2, 2)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good 1 2\nbad 1\n", "line 2 of a.txt needs a word and 2 numbers"),
        ("a.txt", b"good 1 2\nbad 1 x\n", "line 2 of a.txt needs a word and 2 numbers"),
        ("a.txt", b"\xff\xfe\x00bad", "cannot be read as UTF-8"),
        ("a.txt", b"", "holds no vectors"),
        ("a.txt", b"2 3\ngood 1 2\nbad 3 4\n", "line 2 of a.txt needs a word and 3 numbers"),
        ("a.txt.gz", b"not gzip", r"cannot be read \(Not a gzipped file .* damaged or of another sort"),
        ("a.txt.gz", gzip.compress(b"good 1 2\n", mtime=0)[:-9], "cannot be read .* damaged"),
        ("a.npz", b"", "cannot be read .* damaged"),
        ("a.npz", b"not a zip", "not an .npz of plain arrays"),
        ("a.npz", pickle.dumps({"words": 1}), "not an .npz of plain arrays"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        EmbeddingTable.load(tmp_path / name)


def test_pickles_missing_arrays_and_missing_files_are_refused(tmp_path: Path) -> None:
    write_pickle(tmp_path / "p.npz")
    with pytest.raises(FileError, match="Pickles are not read"):
        EmbeddingTable.load(tmp_path / "p.npz")
    np.savez(tmp_path / "m.npz", words=np.array(["a"]))
    with pytest.raises(FileError, match="needs arrays 'words' and 'vectors', found words"):
        EmbeddingTable.load(tmp_path / "m.npz")
    with pytest.raises(FileError, match="no file"):
        EmbeddingTable.load(tmp_path / "none.txt")
    (tmp_path / "large.txt").write_text("good 1e300 2\n", "utf-8")
    with pytest.raises(InputError, match="the vector of 'good' is not finite"):
        EmbeddingTable.load(tmp_path / "large.txt")
    with pytest.raises(InputError, match="the vector of 'b' is not finite"):
        EmbeddingTable(("a", "b"), np.array([[1.0], [np.nan]], dtype=np.float32))


def test_lookup_falls_back_on_accents_and_hyphens(table: EmbeddingTable) -> None:
    vectors, known = table.lookup(["good", "cliché", "re-use", "re-xyz", "xyz", "-"])
    assert known.tolist() == [True, True, True, False, False, False]
    np.testing.assert_array_equal(vectors[:3], [[0, 1], [4, 5], [7, 8]])
    assert not vectors[3:].any()


def test_unknown_words_get_a_vector_of_their_own_in_any_order(table: EmbeddingTable) -> None:
    first, second = table.filled(["good", "foo", "bar"]), table.filled(["bar", "good"])
    np.testing.assert_array_equal(first[[2, 0]], second)
    assert first[1].any() and not np.array_equal(first[1], first[2])
    many = EmbeddingTable(tuple("abc"), np.array([[1.0], [2.0], [6.0]], dtype=np.float32))
    drawn = many.filled([f"w{i}" for i in range(2000)])
    assert drawn.std() == pytest.approx(many.vectors.std(), rel=0.1)
    assert drawn.mean() == pytest.approx(0, abs=0.2)


def test_average_is_the_mean_of_known_words(table: EmbeddingTable) -> None:
    texts = np.array(["good bad bad xyz", "", "xyz", None], dtype=object)
    encoder = WordAverage(table)
    got = encoder.encode([texts])
    np.testing.assert_allclose(got[0], (table.vectors[0] + 2 * table.vectors[1]) / 3)
    assert not got[1:].any()
    again = WordAverage.from_state(State(encoder.state().arrays, encoder.state().meta))
    np.testing.assert_array_equal(again.encode([texts]), got)


@pytest.mark.data
def test_the_real_table_loads(real_data: Path) -> None:
    glove = EmbeddingTable.load(real_data / "glove" / "glove6b_100d_subset.npz")
    assert (len(glove), glove.dim) == (51060, 100)
    assert "coming-of-age" in glove
