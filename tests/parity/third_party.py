"""One side of the comparison in test_third_party.py: makes a model of a library, runs it, writes what came out.

usage: third_party.py CASE WEIGHTS.npz RESULT.npz

Under PyTorch, which comes first, the weights are drawn and written; under flambeau they are read. The result holds the
outputs, the gradients of parameters, generated text and the loss after a few steps of training.
"""

import os
import sys

import numpy as np
import torch

if "flambeau" not in torch.__version__:  # a torchvision without its native library still has its Python part
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def image(*shape):
    return torch.from_numpy(np.random.RandomState(0).standard_normal(shape).astype(np.float32))


def tokens(high, *shape):
    return torch.from_numpy(np.random.RandomState(1).randint(0, high, shape))


def timm_model(name, size=64, count=2, **options):
    import timm

    model = timm.create_model(name, num_classes=7, **options)
    return model, lambda: [model(image(count, 3, size, size))]


def resnet():
    return timm_model("resnet18")


def resnet_pre_activation():
    return timm_model("resnetv2_50", layers=(1, 1, 1, 1), channels=(32, 64, 128, 256))


def efficientnet():
    # Enough images that batch statistics are of more than a few values.
    return timm_model("efficientnet_b0", size=96, count=4, drop_rate=0.0, drop_path_rate=0.0)


def convnext():
    return timm_model("convnext_tiny", depths=(1, 1, 1, 1), dims=(16, 32, 48, 64))


def vit():
    return timm_model("vit_tiny_patch16_224", size=32, img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3)


def swin():
    options = {
        "img_size": 32,
        "window_size": 4,
        "embed_dim": 24,
        "depths": (2, 2),
        "num_heads": (2, 4),
        "patch_size": 2,
        "drop_path_rate": 0.0,  # branches that are left out at random
    }
    return timm_model("swin_tiny_patch4_window7_224", size=32, **options)


def mixer():
    return timm_model("mixer_s16_224", size=64, img_size=64)


def language(model_class, config_class, high=60, labels=True, **config):
    import transformers

    transformers.logging.set_verbosity_error()
    for name in (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "attn_pdrop",
        "embd_pdrop",
        "resid_pdrop",
        "dropout_rate",
    ):
        if hasattr(getattr(transformers, config_class)(), name):
            config[name] = 0.0
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(vocab_size=high, **config))
    ids = tokens(high, 2, 12)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0

    def outputs():
        if labels:
            result = model(input_ids=ids, attention_mask=mask, labels=ids)
            return [result.logits, result.loss[None]]
        result = model(input_ids=ids, attention_mask=mask)
        return [result.last_hidden_state]

    return model, outputs


def bert():
    return language(
        "BertForMaskedLM",
        "BertConfig",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )


def bert_pooled():
    return language(
        "BertModel",
        "BertConfig",
        labels=False,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )


def gpt2():
    return language("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, n_positions=32)


def llama():
    return language(
        "LlamaForCausalLM", "LlamaConfig", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip


def t5():
    return language(
        "T5ForConditionalGeneration", "T5Config", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip


def qwen():
    return language(
        "Qwen2ForCausalLM", "Qwen2Config", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip


def mixtral():
    return language(
        "MixtralForCausalLM", "MixtralConfig", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=32, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip


def mamba():
    return language("MambaForCausalLM", "MambaConfig", hidden_size=32, num_hidden_layers=2, state_size=8)


def deberta():
    return language(
        "DebertaV2ForMaskedLM", "DebertaV2Config", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=32,
    )  # fmt: skip


def main(case, weights_path, result_path):
    torch.manual_seed(0)
    model, outputs = globals()[case]()
    model.train()
    if not os.path.exists(weights_path):
        with torch.no_grad():  # zeros in an initialisation would hide mistakes
            for i, parameter in enumerate(model.parameters()):
                noise = np.random.RandomState(100 + i).standard_normal(tuple(parameter.shape)) * 0.02
                parameter.add_(torch.from_numpy(noise.astype(np.float32)))
        np.savez(weights_path, **{name: value.numpy() for name, value in model.state_dict().items()})
    weights = dict(np.load(weights_path))
    assert list(weights) == list(model.state_dict()), "names of the state dict"
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    result = {}
    found = outputs()
    for i, value in enumerate(found):
        result[f"output {i}"] = value.detach().numpy()
    loss = sum((value.float() ** 2).mean() for value in found)
    loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            result[f"gradient {name}"] = parameter.grad.numpy().copy()
    if case in ("gpt2", "llama", "qwen", "mixtral", "mamba"):
        model.eval()
        for beams in (1, 3):
            options = {"do_sample": False, "num_beams": beams, "max_new_tokens": 8, "pad_token_id": 0}
            result[f"generated with {beams} beams"] = model.generate(tokens(60, 2, 6), **options).numpy()
        model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(3):
        optimizer.step()
        optimizer.zero_grad()
        loss = sum((value.float() ** 2).mean() for value in outputs())
        loss.backward()
    result["loss after training"] = np.array([loss.item()])
    np.savez(result_path, **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
