"""A short tour: make tensors, print them, compute with them, and time a few operators.

python examples/tour.py
"""

import time

import flambeau as torch


def microseconds(function, *arguments, seconds=0.2):
    """Best time of one call, over as many calls as fit in `seconds`."""
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def main():
    torch.manual_seed(0)

    print("A tensor, a view of it, and the view's effect on it:")
    x = torch.arange(12).reshape(3, 4)
    x[:, 1] = -1
    print(x, x.t().stride(), sep="\n")

    print("\nDtypes promote as in PyTorch:")
    print(x + 0.5)
    print(torch.tensor([1, 2], dtype=torch.int8) * torch.tensor([0.5, 0.25], dtype=torch.bfloat16))

    print("\nLarge tensors print in summary:")
    print(torch.linspace(0, 1, 100_000).reshape(100, 1000))

    print("\nMistakes are explained:")
    try:
        torch.ones(3, 4) @ torch.ones(5, 6)
    except RuntimeError as error:
        print(" ", error)

    print("\nTimes:")
    one, vector, matrix = torch.ones(1), torch.rand(1_000_000), torch.rand(512, 512)
    cases = {
        "a + a, one element": (torch.add, one, one),
        "a + a, a million elements": (torch.add, vector, vector),
        "exp, a million elements": (torch.exp, vector),
        "sum, a million elements": (torch.sum, vector),
        "matmul, 512 x 512": (torch.matmul, matrix, matrix),
    }
    for title, (function, *arguments) in cases.items():
        print(f"  {title:28}{microseconds(function, *arguments):10.1f} µs")


if __name__ == "__main__":
    main()
