"""Importing this module lets `import torch` mean flambeau, here and in Python processes started from here.

After `import flambeau.as_torch` the module `torch` is flambeau and `torch.nn.functional` is `flambeau.nn.functional`;
`flambeau run script.py` does the same for a program that must not be changed. Import it before anything that imports
torch; `importlib.metadata.version("torch")` answers as well, because libraries ask it.
"""

from flambeau._compat.alias import install

install()
