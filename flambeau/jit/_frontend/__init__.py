"""From source to graphs: Python functions, classes and modules, and the text in archives."""
