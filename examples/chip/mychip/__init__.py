"""A device for flambeau."""
