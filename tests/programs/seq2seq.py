"""Sequences to sequences: recurrent encoder, decoder with additive attention, teacher forcing."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, integers, report
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
START, LENGTH, WORDS, HIDDEN = 0, 6, 20, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, x):
        return self.gru(self.embedding(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.score = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, query, keys):
        scores = self.score(torch.tanh(self.query(query) + self.key(keys))).squeeze(2).unsqueeze(1)
        return torch.bmm(F.softmax(scores, dim=-1), keys)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, HIDDEN)
        self.attention = Attention()
        self.gru = nn.GRU(2 * HIDDEN, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, WORDS)

    def forward(self, encoded, hidden, target=None):
        word = torch.empty(encoded.size(0), 1, dtype=torch.long, device=device).fill_(START)
        outputs = []
        for i in range(LENGTH):
            context = self.attention(hidden.permute(1, 0, 2), encoded)
            output, hidden = self.gru(torch.cat((self.embedding(word), context), dim=2), hidden)
            outputs.append(self.out(output))
            if target is not None:
                word = target[:, i].unsqueeze(1)
            else:
                word = outputs[-1].topk(1)[1].squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)


def main():
    encoder, decoder = initialise(Encoder()).to(device), initialise(Decoder(), seed=50).to(device)
    optimizers = [torch.optim.Adam(part.parameters(), lr=0.02) for part in (encoder, decoder)]
    data = TensorDataset(integers(WORDS, 16, LENGTH), integers(WORDS, 16, LENGTH, seed=1))
    loader = DataLoader(data, sampler=SequentialSampler(data), batch_size=8)
    criterion = nn.NLLLoss()
    for epoch in range(6):
        total = 0.0
        for source, target in loader:
            for optimizer in optimizers:
                optimizer.zero_grad()
            output = decoder(*encoder(source.to(device)), target.to(device))
            loss = criterion(output.view(-1, output.size(-1)), target.view(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            total += loss.item()
        report(epoch, total / len(loader))
    with torch.no_grad():
        print(decoder(*encoder(data[:1][0])).argmax(-1).shape)


if __name__ == "__main__":
    main()
