"""A language model over words: recurrent or with attention, with truncated backpropagation and clipped gradients."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, report


class RNNModel(nn.Module):
    def __init__(self, kind, tokens, width, hidden, layers):
        super().__init__()
        self.encoder = nn.Embedding(tokens, width)
        self.rnn = getattr(nn, kind)(width, hidden, layers)
        self.decoder = nn.Linear(hidden, tokens)
        self.kind, self.layers, self.hidden = kind, layers, hidden

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        decoded = self.decoder(output).view(-1, self.decoder.out_features)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        zeros = weight.new_zeros(self.layers, batch, self.hidden)
        return (zeros, zeros.clone()) if self.kind == "LSTM" else zeros


class PositionalEncoding(nn.Module):
    def __init__(self, width, length=100):
        super().__init__()
        position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        table = torch.zeros(length, 1, width)
        table[:, 0, 0::2] = torch.sin(position * rate)
        table[:, 0, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(0)]


class TransformerModel(nn.Module):
    def __init__(self, tokens, width, heads, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.position = PositionalEncoding(width)
        layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.decoder = nn.Linear(width, tokens)
        self.width = width

    def forward(self, source, hidden=None):
        mask = nn.Transformer.generate_square_subsequent_mask(len(source))
        x = self.position(self.embedding(source) * math.sqrt(self.width))
        x = self.encoder(x, mask=mask)
        return F.log_softmax(self.decoder(x), dim=-1).view(-1, self.decoder.out_features), None


def repackage(hidden):
    if hidden is None or isinstance(hidden, torch.Tensor):
        return None if hidden is None else hidden.detach()
    return tuple(repackage(h) for h in hidden)


def corpus(tokens, length):
    """Words that mostly follow a fixed successor."""
    rng = np.random.RandomState(0)
    follow = rng.permutation(tokens)
    words = [0]
    for chance in rng.rand(length - 1):
        words.append(int(follow[words[-1]]) if chance < 0.9 else int(rng.randint(tokens)))
    return torch.tensor(words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="LSTM", choices=["LSTM", "GRU", "RNN_TANH", "Transformer"])
    args = parser.parse_args()
    tokens, batch, bptt = 20, 8, 10
    data = corpus(tokens, batch * 81).view(batch, -1).t().contiguous()
    if args.model == "Transformer":
        model = TransformerModel(tokens, 16, 2, 32, 2)
    else:
        model = RNNModel(args.model.split("_")[0], tokens, 16, 24, 2)
    initialise(model)
    criterion = nn.NLLLoss()
    hidden = None if args.model == "Transformer" else model.init_hidden(batch)
    rate, step = 0.5, 0
    for _ in range(3):
        for i in range(0, data.size(0) - 1, bptt):
            length = min(bptt, len(data) - 1 - i)
            source, target = data[i : i + length], data[i + 1 : i + 1 + length].reshape(-1)
            model.zero_grad()
            output, hidden = model(source, repackage(hidden))
            loss = criterion(output, target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad, alpha=-rate * 10)
            report(step, loss)
            step += 1


if __name__ == "__main__":
    main()
