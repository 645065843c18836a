"""Our operators as programs written against ATen see them: its names and its tags."""
