"""Exports models of timm and transformers to ONNX and compares them with onnxruntime at two sizes.

    python -m flambeau run tools/onnx_zoo.py [--json OUT] [--table PAGE] [NAME ...]

It is run with flambeau in the place of torch. Weights are random, configurations small. The table of what passed is
committed as `docs/notes/onnx-zoo.md`.
"""

import argparse
import json
import sys
import time
import traceback
import warnings

import numpy
import torch
import torch.onnx

warnings.filterwarnings("ignore")

TIMM = """
resnet18 resnet50 resnext50_32x4d seresnet18 regnetx_002 regnety_002 efficientnet_b0 mobilenetv2_050 mobilenetv3_small_050
mnasnet_small densenet121 vgg11 convnext_atto convnextv2_atto vit_tiny_patch16_224 deit_tiny_patch16_224
swin_tiny_patch4_window7_224 mixer_s32_224 resmlp_12_224 poolformer_s12 ghostnet_050 repvgg_a0 dla34 hardcorenas_a
edgenext_xx_small lcnet_035 tinynet_e fbnetc_100
""".split()

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
         "max_position_embeddings": 64}  # fmt: skip
TEXT = {
    "Bert": {}, "Roberta": {"pad_token_id": 1}, "Electra": {"embedding_size": 32}, "Albert": {"embedding_size": 16},
    "MobileBert": {"embedding_size": 16, "intra_bottleneck_size": 32, "num_feedforward_networks": 1}, "Camembert": {"pad_token_id": 1},
    "XLMRoberta": {"pad_token_id": 1}, "MPNet": {"pad_token_id": 1}, "Ernie": {}, "SqueezeBert": {"embedding_size": 32},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, "LayoutLM": {}, "RoFormer": {"embedding_size": 32},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "GPTNeoX": {}, "OPT": {"word_embed_proj_dim": 32, "ffn_dim": 64}, "Llama": {"num_key_value_heads": 2},
    "Mistral": {"num_key_value_heads": 2}, "Qwen2": {"num_key_value_heads": 2}, "Gemma": {"num_key_value_heads": 2, "head_dim": 8},
    "Phi": {}, "Bloom": {"n_layer": 2, "n_head": 4}, "StableLm": {"num_key_value_heads": 4}, "CodeGen": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
    "GPTBigCode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}, "Olmo": {"num_key_value_heads": 4}, "Cohere": {"num_key_value_heads": 2},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}  # fmt: skip
VISION = {
    "ViT": {"image_size": 32, "patch_size": 8}, "DeiT": {"image_size": 32, "patch_size": 8}, "Beit": {"image_size": 32, "patch_size": 8},
    "Dinov2": {"image_size": 32, "patch_size": 8},
}  # fmt: skip


def timm_case(name):
    import timm

    size = (
        224
        if "224" in name and ("swin" in name or "vit" in name or "mixer" in name or "resmlp" in name or "deit" in name)
        else 64
    )
    model = timm.create_model(name, pretrained=False, num_classes=10).eval()
    return model, {"x": torch.randn(2, 3, size, size)}, {"x": torch.randn(3, 3, size, size)}, {"x": {0: "batch"}}


def text_case(name):
    import transformers

    config = getattr(transformers, f"{name}Config")(**{**SMALL, **TEXT[name]})
    config.use_cache = False
    model = getattr(transformers, f"{name}Model")(config).eval()

    def inputs(batch, length):
        ids = torch.randint(3, 90, (batch, length))
        return {"input_ids": ids, "attention_mask": torch.ones(batch, length, dtype=torch.int64)}

    axes = {0: "batch", 1: "sequence"}
    return model, inputs(2, 8), inputs(3, 11), {"input_ids": axes, "attention_mask": axes}


def vision_case(name):
    import transformers

    config = getattr(transformers, f"{name}Config")(**{**SMALL, **VISION[name]})
    model = getattr(transformers, f"{name}Model")(config).eval()
    images = [torch.randn(n, 3, 32, 32) for n in (2, 3)]
    return model, {"pixel_values": images[0]}, {"pixel_values": images[1]}, {"pixel_values": {0: "batch"}}


class Leaves(torch.nn.Module):
    """The tensors of what a model returns."""

    def __init__(self, model, names):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args))) if self.names != ["x"] else self.model(*args)
        return out if isinstance(out, torch.Tensor) else [v for v in out.values() if isinstance(v, torch.Tensor)]


def check(case):
    """Exports a model and compares it at the example's size and at another; the largest difference."""
    model, example, other, axes = case
    wrapped = Leaves(model, list(example)).eval()
    shapes = (tuple(axes.values()),)
    began = time.process_time()
    program = torch.onnx.export(wrapped, tuple(example.values()), dynamic_shapes=shapes)
    seconds = time.process_time() - began
    worst = 0.0
    for inputs in (example, other):
        with torch.no_grad():
            wanted = wrapped(*inputs.values())
        wanted = [wanted] if isinstance(wanted, torch.Tensor) else wanted
        results = program(*inputs.values())
        for a, b in zip(results, wanted):
            numpy.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=2e-3)
            worst = max(worst, float((a - b).abs().max()))
    return worst, seconds


def cases():
    for name in TIMM:
        yield f"timm/{name}", timm_case, name
    for table, make in ((TEXT, text_case), (VISION, vision_case)):
        for name in table:
            yield f"transformers/{name}", make, name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--table", help="write the results as a page")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    results = {}
    for label, make, name in cases():
        if options.names and not any(part in label for part in options.names):
            continue
        torch.manual_seed(0)
        try:
            worst, seconds = check(make(name))
            results[label] = {"ok": True, "difference": worst, "seconds": round(seconds, 2)}
            print(f"ok   {label:45s} {worst:.1e} {seconds:6.2f} s", flush=True)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip().splitlines()
            results[label] = {"ok": False, "error": text[0][:300]}
            print(f"FAIL {label:45s} {' | '.join(text)[:700]}", flush=True)
    passed = sum(r["ok"] for r in results.values())
    print(f"{passed} of {len(results)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    if options.table:
        write_table(options.table, results)
    return 0 if passed == len(results) else 1


def write_table(path, results):
    rows = [
        f"| {name} | {'yes' if r['ok'] else r['error'][:80]} | {r['difference']:.0e} |"
        if r["ok"]
        else f"| {name} | {r['error'][:80]} | |"
        for name, r in results.items()
    ]
    passed = sum(r["ok"] for r in results.values())
    text = (
        "# Models exported to ONNX\n\nSmall configurations with random weights, run with `make onnx-zoo`: exported with batch (and "
        "sequence) varying,\nand compared with onnxruntime at the size of the example and at another.\n\n"
        f"{passed} of {len(results)} agree.\n\n| model | agrees | largest difference |\n|---|---|---|\n"
    )
    with open(path, "w") as file:
        file.write(text + "\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(main())
