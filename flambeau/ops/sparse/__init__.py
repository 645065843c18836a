"""Conversions between sparse tensors and their strided parts."""
