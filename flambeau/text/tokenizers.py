"""Tokenizers: words by simple rules, and subwords (BPE, WordPiece) through the library `tokenizers`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import flambeau
from flambeau import Tensor

_PATTERN = re.compile(r"[\w]+|[^\w\s]")


def basic_english(text: str) -> list[str]:
    """Lower-case words, and punctuation marks by themselves.

    >>> flambeau.text.basic_english("Hello, World!")
    ['hello', ',', 'world', '!']
    """
    return _PATTERN.findall(text.lower())


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ImportError("[text] expected the library `tokenizers` for subwords: pip install tokenizers") from None
    return tokenizers


class Tokenizer:
    """A tokenizer of the library `tokenizers`, whose results are tensors."""

    def __init__(self, backend: Any, pad_token: str = "<pad>") -> None:
        self.backend = backend
        self.pad_token = pad_token
        self.pad_id = backend.token_to_id(pad_token)

    @classmethod
    def load(cls, path: str | os.PathLike[str], pad_token: str = "<pad>") -> Tokenizer:
        """From a file `tokenizer.json`, as model hubs have them."""
        return cls(_library().Tokenizer.from_file(os.fspath(path)), pad_token)

    def save(self, path: str | os.PathLike[str]) -> None:
        self.backend.save(os.fspath(path))

    def __len__(self) -> int:
        return int(self.backend.get_vocab_size())

    def tokenize(self, text: str) -> list[str]:
        """The subwords as text."""
        return list(self.backend.encode(text).tokens)

    def encode(self, text: str) -> Tensor:
        """The numbers of the subwords."""
        return flambeau.tensor(self.backend.encode(text).ids, dtype=flambeau.int64)

    def encode_batch(self, texts: Sequence[str]) -> list[Tensor]:
        return [flambeau.tensor(e.ids, dtype=flambeau.int64) for e in self.backend.encode_batch(list(texts))]

    def decode(self, numbers: Tensor | Sequence[int]) -> str:
        return str(self.backend.decode(numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)))

    def __call__(self, texts: str | Sequence[str]) -> Any:
        """A tensor for a text, a padded `Batch` for several."""
        if isinstance(texts, str):
            return self.encode(texts)
        from flambeau.text.batches import collate

        if self.pad_id is None:
            raise ValueError(
                f"[Tokenizer] expected a token {self.pad_token!r} to pad with, got a vocabulary without it"
            )
        return collate(self.encode_batch(texts), padding_value=self.pad_id)


def train_bpe(texts: Iterable[str], vocab_size: int, specials: Sequence[str] = ("<unk>", "<pad>")) -> Tokenizer:
    """Byte pair encoding over bytes, which can encode any text."""
    library = _library()
    backend = library.Tokenizer(library.models.BPE(unk_token=None))
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend)


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, specials: Sequence[str] = ("<unk>", "<pad>"), lowercase: bool = True
) -> Tokenizer:
    """WordPiece, in which parts inside a word begin with ##."""
    library = _library()
    backend = library.Tokenizer(library.models.WordPiece(unk_token=specials[0]))
    if lowercase:
        backend.normalizer = library.normalizers.Lowercase()
    backend.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    backend.decoder = library.decoders.WordPiece()
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=list(specials), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend)
