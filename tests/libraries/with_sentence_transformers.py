"""Embeddings of a small BERT made here."""

import tempfile

import torch
import transformers
from sentence_transformers import SentenceTransformer, models, util

with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/vocab.txt", "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "ran"]))
    transformers.BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    words = models.Transformer(folder)
    model = SentenceTransformer(modules=[words, models.Pooling(16)], device="cpu")
    embedded = model.encode(["a cat sat", "a dog ran", "a cat sat"], convert_to_tensor=True)
similar = util.cos_sim(embedded, embedded)
assert similar.shape == (3, 3) and torch.allclose(similar[0, 2], torch.tensor(1.0), atol=1e-4)
