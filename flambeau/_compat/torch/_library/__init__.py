"""Parts of `torch.library` at the paths that libraries import them from."""
