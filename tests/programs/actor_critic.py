"""An actor and a critic that share a layer, on a pole on a cart."""

from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from cartpole import CartPole
from common import initialise, report
from torch.distributions import Categorical

Saved = namedtuple("Saved", ["log_prob", "value", "entropy"])


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)

    def forward(self, x):
        x = F.relu(self.shared(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def main():
    env, rng = CartPole(3), np.random.RandomState(2)
    model = initialise(ActorCritic())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
    for episode in range(10):
        state, saved, rewards, done = env.reset(), [], [], False
        while not done:
            probs, value = model(torch.from_numpy(state))
            m = Categorical(probs)
            action = torch.tensor(int(rng.rand() >= probs[0].item()))
            saved.append(Saved(m.log_prob(action), value, m.entropy()))
            state, reward, done = env.step(int(action))
            rewards.append(reward)
        returns, total = [], 0.0
        for reward in rewards[::-1]:
            total = reward + 0.95 * total
            returns.insert(0, total)
        returns = torch.tensor(returns) / 20
        advantages = [value - s.value.item() for s, value in zip(saved, returns)]
        policy_loss = torch.stack([-s.log_prob * a - 0.01 * s.entropy for s, a in zip(saved, advantages)]).sum()
        value_loss = torch.stack([F.smooth_l1_loss(s.value, v[None]) for s, v in zip(saved, returns)]).sum()
        loss = policy_loss + value_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(episode, loss)


if __name__ == "__main__":
    main()
