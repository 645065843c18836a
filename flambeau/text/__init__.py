"""Text: vocabularies, tokenizers, batches of sequences and datasets for language models."""

from flambeau.text.batches import Batch, collate, packed
from flambeau.text.datasets import LanguageModelDataset, bptt_batches, text_lines
from flambeau.text.tokenizers import Tokenizer, basic_english, train_bpe, train_wordpiece
from flambeau.text.vocabulary import Vocabulary, build_vocabulary

__all__ = [
    "Batch", "LanguageModelDataset", "Tokenizer", "Vocabulary", "basic_english", "bptt_batches", "build_vocabulary",
    "collate", "packed", "text_lines", "train_bpe", "train_wordpiece",
]  # fmt: skip
