"""Our operators as programs written against ATen see them: its names, its tags, and the parts it takes an op into."""
