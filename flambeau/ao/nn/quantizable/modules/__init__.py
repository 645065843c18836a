"""Recurrent layers and attention out of parts that can be observed."""

from __future__ import annotations

from flambeau.ao.nn.quantizable.modules.activation import MultiheadAttention
from flambeau.ao.nn.quantizable.modules.rnn import LSTM, LSTMCell

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]
