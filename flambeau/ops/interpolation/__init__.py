"""Resizing of images and sampling at grid points."""
