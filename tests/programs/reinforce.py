"""Policy gradients on a pole on a cart."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from cartpole import CartPole
from common import initialise, report
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.affine2 = nn.Linear(32, 2)

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)


def main():
    env, rng = CartPole(), np.random.RandomState(1)
    policy = initialise(Policy())
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    for episode in range(12):
        state, log_probs, rewards, done = env.reset(), [], [], False
        while not done:
            m = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
            action = torch.tensor([int(rng.rand() >= m.probs[0, 0].item())])
            log_probs.append(m.log_prob(action))
            state, reward, done = env.step(action.item())
            rewards.append(reward)
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        optimizer.zero_grad()
        loss = torch.cat([-log_prob * value for log_prob, value in zip(log_probs, returns)]).sum()
        loss.backward()
        optimizer.step()
        print(f"length {len(rewards)}")
        report(episode, loss)


if __name__ == "__main__":
    main()
