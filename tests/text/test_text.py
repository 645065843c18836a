"""Vocabularies, subwords, batches and windows of text; the examples of the package run."""

import doctest
import importlib

import pytest

import flambeau
from flambeau import nn, text

SENTENCES = ["the cat sat on the mat", "the dog sat", "a cat and a dog"]


@pytest.mark.parametrize("name", ["vocabulary", "tokenizers", "batches", "datasets"])
def test_examples(name):
    module = importlib.import_module(f"flambeau.text.{name}")
    assert doctest.testmod(module, extraglobs={"flambeau": flambeau}).failed == 0


def test_a_vocabulary_numbers_frequent_words_first():
    words = text.build_vocabulary(map(text.basic_english, SENTENCES), max_size=5)
    assert words.tokens == ["<unk>", "<pad>", "the", "a", "cat"]
    assert words(["cat", "bird"]) == [4, 0]
    with pytest.raises(KeyError, match="expected one of 1 tokens, got 'b'"):
        text.Vocabulary(["a"])["b"]


@pytest.mark.parametrize("train", [text.train_bpe, text.train_wordpiece])
def test_subwords_give_the_text_back(train, tmp_path):
    pytest.importorskip("tokenizers")
    tokenizer = train(SENTENCES, 300)
    assert tokenizer.decode(tokenizer.encode("the cat sat")) == "the cat sat"
    batch = tokenizer(SENTENCES)
    assert batch.tokens.shape == (3, int(batch.lengths.max()))
    assert batch.padding_mask.sum(1).tolist() == [batch.tokens.shape[1] - n for n in batch.lengths.tolist()]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert text.Tokenizer.load(tmp_path / "tokenizer.json").encode("a dog").equal(tokenizer.encode("a dog"))


def test_packed_batches_go_through_recurrent_layers():
    batch = text.collate([[1, 2, 3], [4], [5, 6]])
    embedded = nn.Embedding(7, 4)(batch.tokens)
    _, hidden = nn.GRU(4, 5, batch_first=True)(text.packed(batch, embedded))
    assert hidden.shape == (1, 3, 5)


def test_streams_follow_each_other(tmp_path):
    pieces = list(text.bptt_batches(flambeau.arange(21), 2, 4))
    assert pieces[0][0][:, 1].tolist() == [10, 11, 12, 13]
    assert all(y.equal(x + 1) for x, y in pieces)
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    assert list(text.text_lines(tmp_path / "lines.txt")) == ["one", "two"]
