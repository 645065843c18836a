"""Deep Q-learning with a replay memory and a target network, on a pole on a cart."""

import copy
from collections import deque

import numpy as np
import torch
from cartpole import CartPole
from common import initialise, report
from torch import nn


def main():
    env, rng = CartPole(5), np.random.RandomState(3)
    network = initialise(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)))
    target = copy.deepcopy(network)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, amsgrad=True)
    memory, criterion, step = deque(maxlen=1000), nn.SmoothL1Loss(), 0
    for _ in range(25):
        state, done = env.reset(), False
        while not done:
            if rng.rand() < 0.5:
                action = int(rng.randint(2))
            else:
                with torch.no_grad():
                    action = network(torch.as_tensor(state)[None]).max(1).indices.view(1, 1).item()
            following, reward, done = env.step(action)
            memory.append((state, action, reward, following, done))
            state = following
            if len(memory) < 64:
                continue
            batch = [memory[i] for i in rng.choice(len(memory), 32, replace=False)]
            states, actions, rewards, nexts, ends = zip(*batch)
            states, nexts = torch.tensor(np.array(states)), torch.tensor(np.array(nexts))
            actions, rewards = torch.tensor(actions).unsqueeze(1), torch.tensor(rewards)
            values = network(states).gather(1, actions)
            with torch.no_grad():
                best = target(nexts).max(1).values
                best[torch.tensor(ends)] = 0.0
            loss = criterion(values, (rewards + 0.9 * best).unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_value_(network.parameters(), 100)
            optimizer.step()
            for own, other in zip(target.parameters(), network.parameters()):
                own.data.lerp_(other.data, 0.05)
            if step % 10 == 0:
                report(step // 10, loss)
            step += 1
            if step >= 200:
                return


if __name__ == "__main__":
    main()
