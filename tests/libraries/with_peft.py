"""LoRA on a small GPT-2: only the adapters learn, and merging them gives the same results."""

import peft
import torch
import transformers

model = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=2)
)
tuned = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
tokens = torch.randint(0, 50, (4, 16))
optimizer = torch.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=1e-2)
losses = []
for _ in range(10):
    loss = tuned(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0]
tuned.eval()
expected = tuned(input_ids=tokens).logits
merged = tuned.merge_and_unload()
torch.testing.assert_close(merged(input_ids=tokens).logits, expected, rtol=1e-4, atol=1e-4)
