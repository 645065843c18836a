"""A short tour: make tensors, compute with them, differentiate, fit a line, and time a few operators.

python examples/tour.py
"""

import sys
import time

import flambeau as torch


def title(text):
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{text}{plain}")


def microseconds(function, *arguments, seconds=0.15):
    """Best time of one call, over as many calls as fit in `seconds`."""
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def tensors():
    title("Tensors: a view shares memory, shapes broadcast, dtypes promote")
    x = torch.arange(12).reshape(3, 4)
    x[:, 1] = -1
    print(x)
    print(x.float().mean(0) + torch.tensor([[0.5], [100]]))
    print(torch.tensor([1, 2], dtype=torch.int8) * torch.tensor([0.5, 0.25], dtype=torch.bfloat16))

    title("Indexing: by slices, by lists, by masks")
    print(x[::2, -2:], x[[0, 2], [3, 0]], x[x > 6], sep="\n")

    title("Large tensors print in summary")
    print(torch.linspace(0, 1, 100_000).reshape(100, 1000))

    title("Mistakes are explained")
    try:
        torch.ones(3, 4) @ torch.ones(5, 6)
    except RuntimeError as error:
        print(error)


def mathematics():
    title("Linear algebra: solve, and check the solution")
    matrix, right = torch.randn(200, 200), torch.randn(200, 3)
    solution = torch.linalg.solve(matrix, right)
    print(f"largest residual {(matrix @ solution - right).abs().max().item():.1e}")
    print("eigenvalues of [[2, 1], [1, 2]]:", torch.linalg.eigvalsh(torch.tensor([[2.0, 1.0], [1.0, 2.0]])).tolist())

    title("Fourier transforms: the two tones in a noisy signal")
    seconds = torch.arange(1000) / 1000
    signal = (2 * torch.pi * 50 * seconds).sin() + 0.6 * (2 * torch.pi * 120 * seconds).sin() + torch.randn(1000)
    spectrum = torch.fft.rfft(signal).abs()
    print(sorted(spectrum.topk(2).indices.tolist()), "Hz")


def calculus():
    title("Autograd: d/dx sin(x²) at 1, and its derivative")
    x = torch.tensor(1.0, requires_grad=True)
    (first,) = torch.autograd.grad((x * x).sin(), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    print(f"{first.item():.6f}  {second.item():.6f}")

    title("Training by hand: a line through noisy points, y = 3 x₁ - 2 x₂ + 0.5")
    points = torch.randn(256, 2)
    values = points @ torch.tensor([3.0, -2.0]) + 0.5 + 0.1 * torch.randn(256)
    weight, bias = torch.zeros(2, requires_grad=True), torch.zeros((), requires_grad=True)
    for step in range(61):
        loss = (points @ weight + bias - values).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in (weight, bias):
                parameter -= 0.05 * parameter.grad
                parameter.grad = None
        if step % 10 == 0:
            print(f"step {step:2}   loss {loss.item():8.4f}   {'█' * max(1, round(3 * loss.item()))}")
    print("found", [round(w, 2) for w in weight.tolist()], round(bias.item(), 2))


def times():
    title(f"Times, {torch.get_num_threads()} threads")
    one, vector, matrix = torch.ones(1), torch.rand(1_000_000), torch.rand(512, 512)
    image, kernel = torch.rand(1, 32, 56, 56), torch.rand(64, 32, 3, 3)
    cases = {
        "a + a, one element": (torch.add, one, one),
        "a + a, a million elements": (torch.add, vector, vector),
        "exp, a million elements": (torch.exp, vector),
        "sum, a million elements": (torch.sum, vector),
        "softmax, 512 rows of 512": (torch.softmax, matrix, 1),
        "sort, a million elements": (torch.sort, vector),
        "matmul, 512 x 512": (torch.matmul, matrix, matrix),
        "3 x 3 convolution, 56 x 56": (torch.conv2d, image, kernel),
    }
    for name, (function, *arguments) in cases.items():
        print(f"  {name:28}{microseconds(function, *arguments):10.1f} µs")


def main():
    torch.manual_seed(0)
    print(f"flambeau {torch.__version__}")
    tensors()
    mathematics()
    calculus()
    times()


if __name__ == "__main__":
    main()
