"""Ratings explained by factors of users and items, found by Adagrad on a few examples at a time."""

import torch
from common import integers, numbers, report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Factorisation(nn.Module):
    def __init__(self, users, items, factors):
        super().__init__()
        self.users, self.items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(0.0))
        with torch.no_grad():
            for i, table in enumerate((self.users, self.items, self.user_bias, self.item_bias)):
                table.weight.copy_(0.1 * numbers(*table.weight.shape, seed=i))

    def forward(self, user, item):
        score = (self.users(user) * self.items(item)).sum(1)
        return score + self.user_bias(user).squeeze(-1) + self.item_bias(item).squeeze(-1) + self.mean


def main():
    true_users, true_items = numbers(40, 3, seed=11), numbers(30, 3, seed=12)
    user, item = integers(40, 800, seed=13), integers(30, 800, seed=14)
    rating = (true_users[user] * true_items[item]).sum(1) + 0.1 * numbers(800, seed=15) + 3
    loader = DataLoader(TensorDataset(user, item, rating), batch_size=100)
    model = Factorisation(40, 30, 5)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.3)
    step = 0
    for _ in range(4):
        for users, items, ratings in loader:
            loss = nn.functional.huber_loss(model(users, items), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(step, loss)
            step += 1


if __name__ == "__main__":
    main()
