"""A decoder with rotary positions learns a sequence and generates."""

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

model = AutoregressiveWrapper(
    TransformerWrapper(
        num_tokens=16, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True)
    )
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
tokens = torch.arange(17).repeat(4, 1) % 16
losses = []
for _ in range(20):
    loss = model(tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0]
assert model.generate(tokens[:1, :4], 5).shape == (1, 5)
