"""Why recurrent layers have no definitions."""

from __future__ import annotations

from flambeau.ops.rules import definition

definition.without(
    "devices without a kernel compute the cells one by one",
    "_rnn_layer",
    "_rnn_layer_backward",
)
