"""Features of sound, and a recogniser of sequences by CTC."""

import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.CRDNN import CRDNN
from speechbrain.nnet.losses import ctc_loss

torch.manual_seed(0)
wave = torch.randn(2, 16000)
features = Fbank(n_mels=40)(wave)
assert features.shape[0] == 2 and features.shape[2] == 40
model = CRDNN(
    input_shape=[None, None, 40],
    cnn_blocks=1,
    cnn_channels=[8],
    rnn_layers=1,
    rnn_neurons=16,
    dnn_blocks=1,
    dnn_neurons=8,
)
logits = model(features).log_softmax(-1)
loss = ctc_loss(logits, torch.tensor([[1, 2, 3], [3, 2, 1]]), torch.ones(2), torch.ones(2), blank_index=0)
loss.backward()
assert torch.isfinite(loss)
