"""Importing this module lets `import torch` mean flambeau, here and in Python processes started from here.

    import flambeau.as_torch
    import torch                       # flambeau
    from torch.nn import functional    # flambeau.nn.functional

`flambeau run script.py` does the same for a program that must not be changed. Import it before anything that imports
torch; `importlib.metadata.version("torch")` answers as well, because libraries ask it.
"""

from flambeau._alias import install

install()
