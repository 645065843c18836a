"""nn.Transformer with padded batches and masks, trained to translate and then decoded greedily."""

import math
import warnings

import torch
import torch.nn as nn
from common import initialise, integers, report
from torch.nn.utils.rnn import pad_sequence

PAD, WORDS, WIDTH = 1, 20, 16
warnings.simplefilter("ignore")


class Positions(nn.Module):
    def __init__(self, maxlen=50):
        super().__init__()
        rate = torch.exp(-torch.arange(0, WIDTH, 2) * math.log(10000) / WIDTH)
        position = torch.arange(0, maxlen).reshape(maxlen, 1)
        table = torch.zeros((maxlen, WIDTH))
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table.unsqueeze(-2))

    def forward(self, x):
        return x + self.table[: x.size(0), :]


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(
            d_model=WIDTH, nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=32, dropout=0.0
        )
        self.generator = nn.Linear(WIDTH, WORDS)
        self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.positions = Positions()

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(0))
        padding = (source == PAD).transpose(0, 1)
        out = self.transformer(
            self.positions(self.source(source) * math.sqrt(WIDTH)),
            self.positions(self.target(target) * math.sqrt(WIDTH)),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=(target == PAD).transpose(0, 1),
            memory_key_padding_mask=padding,
        )
        return self.generator(out)


def main():
    model = initialise(Translator())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    source = pad_sequence([integers(WORDS - 2, n, seed=n) + 2 for n in (5, 7, 3)], padding_value=PAD)
    target = pad_sequence([integers(WORDS - 2, n, seed=n + 9) + 2 for n in (6, 4, 8)], padding_value=PAD)
    for step in range(8):
        model.train()
        logits = model(source, target[:-1])
        optimizer.zero_grad()
        loss = criterion(logits.reshape(-1, WORDS), target[1:].reshape(-1))
        loss.backward()
        optimizer.step()
        report(step, loss.item())
    model.eval()
    words = torch.ones(1, 1).fill_(2).type(torch.long)
    with torch.no_grad():
        for _ in range(3):
            word = model(source[:, :1], words)[-1].argmax(-1).item()
            words = torch.cat([words, torch.ones(1, 1).type_as(source.data).fill_(word)], dim=0)
    print(words.flatten().tolist()[0])


if __name__ == "__main__":
    main()
