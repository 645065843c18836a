"""Programs in PyTorch's `.pt2` layout: a zip archive of JSON and raw tensors.

`schema` has the version and the numbers of dtypes and layouts, `symbols` writes and reads expressions of sizes, `write`
and `read` turn a program into JSON and back, `archive` puts JSON, weights and constants into a file.
"""
