"""A small GPT-2 made here is fine-tuned by TRL's trainers: supervised, and by preferences."""

import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

words = {word: i for i, word in enumerate("<pad> <eos> a b c d e f".split())}
inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
config = GPT2Config(vocab_size=8, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1)
common = {
    "max_steps": 4,
    "per_device_train_batch_size": 2,
    "report_to": [],
    "save_strategy": "no",
    "use_cpu": True,
    "logging_steps": 1,
    "bf16": False,
}
with tempfile.TemporaryDirectory() as folder:
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    texts = Dataset.from_dict({"text": ["a b c d", "b c d e", "c d e f", "a c e a"]})
    trainer = SFTTrainer(
        folder, args=SFTConfig(folder, max_length=16, **common), train_dataset=texts, processing_class=tokenizer
    )
    trainer.train()
    pairs = Dataset.from_dict(
        {"prompt": ["a b", "b c"] * 2, "chosen": [" c d", " d e"] * 2, "rejected": [" a a", " f f"] * 2}
    )
    trainer = DPOTrainer(folder, args=DPOConfig(folder, **common), train_dataset=pairs, processing_class=tokenizer)
    trainer.train()
    assert any("loss" in entry for entry in trainer.state.log_history)
