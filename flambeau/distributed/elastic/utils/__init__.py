"""Small helpers of launchers."""
