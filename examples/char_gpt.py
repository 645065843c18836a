"""A character-level GPT: trains on Shakespeare's sonnets, with and without `compile`, and writes a few lines itself.

python examples/char_gpt.py [--steps 500] [--quick] [--picture build/char_gpt.png]

The text in examples/data was published in 1609 and is in the public domain.
"""

import argparse
import pathlib
import time

import curves

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


class Block(nn.Module):
    """Attention to what came before, then a small network for each position; both added to their input."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, letters, length, width, heads, layers):
        super().__init__()
        self.length = length
        self.token, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.04)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(data, batch, length):
    """Random stretches of the text, and the same moved on by one letter."""
    starts = torch.randint(len(data) - length, (batch, 1))
    places = starts + torch.arange(length)
    return data[places], data[places + 1]


def loss_of(model, tokens, targets):
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def step(model, optimizer, tokens, targets):
    loss = loss_of(model, tokens, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def write(model, letters, start, count, temperature=0.8):
    """Continues `start` by `count` letters, each drawn from what the model expects next."""
    tokens = torch.tensor([[letters.index(c) for c in start]])
    for _ in range(count):
        scores = model(tokens[:, -model.length :])[:, -1] / temperature
        tokens = torch.cat([tokens, torch.multinomial(scores.softmax(-1), 1)], 1)
    return "".join(letters[i] for i in tokens[0].tolist())


def speeds(models, tokens, targets, rounds):
    """Tokens a second of each model in training; they take turns and the best step counts, for busy machines."""
    times = {name: float("inf") for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            start = time.perf_counter()
            step(model, torch.optim.SGD(model.parameters(), lr=0.0), tokens, targets)
            times[name] = min(times[name], time.perf_counter() - start)
    return {name: tokens.numel() / best for name, best in times.items()}


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--picture", type=pathlib.Path, default=pathlib.Path("build/char_gpt.png"))
    parser.add_argument("--quick", action="store_true", help="a tiny model and a few steps, for the tests")
    options = parser.parse_args()
    batch, length, width, heads, layers = (4, 16, 32, 2, 1) if options.quick else (16, 64, 128, 4, 3)
    steps, rounds = (12, 2) if options.quick else (options.steps, 20)

    torch.manual_seed(1)
    text = (pathlib.Path(__file__).parent / "data" / "sonnets.txt").read_text()
    letters = sorted(set(text))
    data = torch.tensor([letters.index(c) for c in text])
    model = GPT(len(letters), length, width, heads, layers)
    print(f"flambeau {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{len(text):,} letters of Shakespeare, {len(letters)} of them different")
    print(f"GPT with {layers} layers and {sum(p.numel() for p in model.parameters()):,} parameters\n")

    print("compiling forward and backward ... ", end="", flush=True)
    start = time.perf_counter()
    compiled = torch.compile(model)
    loss_of(compiled, *batches(data, batch, length)).backward()
    print(f"{time.perf_counter() - start:.1f} s (kernels are kept on disk: the next time is shorter)")
    print(f"timing {rounds} steps of each", flush=True)
    rates = speeds({"eager": model, "compiled": compiled}, *batches(data, batch, length), rounds)
    for name, rate in rates.items():
        print(f"  {name:9} {rate:9,.0f} tokens/s  {'█' * max(1, round(30 * rate / max(rates.values())))}")
    print(f"  compiled / eager = {rates['compiled'] / rates['eager']:.2f}\n")

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps + 1)
    print(f"training, {steps} steps of {batch} x {length} letters")
    losses = []
    for _ in curves.progress(steps, lambda: f"loss {losses[-1]:.3f}"):
        losses.append(step(compiled, optimizer, *batches(data, batch, length)))
        schedule.step()
    print(curves.draw(losses))
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    curves.save(options.picture, losses)
    print(
        f"loss {losses[0]:.2f} -> {sum(losses[-10:]) / len(losses[-10:]):.2f}; the curve is also in {options.picture}\n"
    )

    print("it writes:\n")
    print(write(model, letters, "When I ", 20 if options.quick else 320))


if __name__ == "__main__":
    main()
