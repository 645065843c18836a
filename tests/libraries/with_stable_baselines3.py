"""PPO and DQN learn for a few steps."""

from stable_baselines3 import DQN, PPO

PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, device="cpu").learn(256)
model = DQN("MlpPolicy", "CartPole-v1", learning_starts=50, device="cpu")
model.learn(200)
assert model.predict(model.get_env().reset())[0].shape == (1,)
