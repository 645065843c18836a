"""Vocabularies: tokens as numbers and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import flambeau
from flambeau import Tensor


class Vocabulary:
    """Tokens in the order of their numbers. A token that is not in it has the number `default_index`, or raises.

    >>> words = flambeau.text.Vocabulary(["<unk>", "a", "b"], default="<unk>")
    >>> words(["b", "c"]), words.decode([2, 0])
    ([2, 0], ['b', '<unk>'])
    """

    def __init__(self, tokens: Iterable[str], default: str | None = None) -> None:
        self.tokens = list(tokens)
        self.numbers = {token: i for i, token in enumerate(self.tokens)}
        if len(self.numbers) != len(self.tokens):
            repeated = [token for token, count in Counter(self.tokens).items() if count > 1]
            raise ValueError(f"[Vocabulary] expected every token once, got {repeated[0]!r} again")
        self.default_index = None if default is None else self[default]

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __getitem__(self, token: str) -> int:
        """The number of a token."""
        number = self.numbers.get(token, getattr(self, "default_index", None))
        if number is None:
            raise KeyError(f"[Vocabulary] expected one of {len(self)} tokens, got {token!r}; set a default for others")
        return number

    def __call__(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of tokens."""
        return [self[token] for token in tokens]

    def encode(self, tokens: Iterable[str], dtype: flambeau.dtype = flambeau.int64) -> Tensor:
        """The numbers of tokens as a tensor."""
        return flambeau.tensor(self(tokens), dtype=dtype)

    def decode(self, numbers: Sequence[int] | Tensor) -> list[str]:
        """The tokens of numbers."""
        return [self.tokens[int(i)] for i in (numbers.tolist() if isinstance(numbers, Tensor) else numbers)]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"


def build_vocabulary(
    sentences: Iterable[Iterable[str]],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    specials: Sequence[str] = ("<unk>", "<pad>"),
    default: str | None = "<unk>",
) -> Vocabulary:
    """The tokens of tokenized sentences, the most frequent first and equal ones by the alphabet, after the special ones.

    >>> flambeau.text.build_vocabulary([["a", "b"], ["b"]]).tokens
    ['<unk>', '<pad>', 'b', 'a']
    """
    counts = Counter(token for sentence in sentences for token in sentence)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    tokens = [token for token, count in ordered if count >= min_count and token not in specials]
    room = None if max_size is None else max(0, max_size - len(specials))
    return Vocabulary([*specials, *tokens[:room]], default if default in specials else None)
