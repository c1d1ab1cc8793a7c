"""The open_clip path with a ViT-B/32 text tower of real shape and random weights, against the
formula written out.
"""

import json

import numpy as np
import open_clip
import torch
from hbench_hgldv2.grouping import encode
from hbench_hgldv2.labels.label import Label

NAME = "hbench-text-of-ViT-B-32"
TEXTS = ["church building", "Eastern Orthodox church", "lake"]
START, END = 49406, 49407  # CLIP's tokens around a text


def by_hand(text, weights):
    """CLIP's text vector: pre-norm causal attention and MLP twelve times, the end token's state,
    projected, scaled to 1.
    """
    tokens = open_clip.get_tokenizer("ViT-B-32")([text])[0]
    end = int((tokens == END).nonzero()[0])
    assert int(tokens[0]) == START

    def norm(x, name):
        weight, bias = (weights[f"{name}.{part}"] for part in ("weight", "bias"))
        return torch.nn.functional.layer_norm(x, (512,), weight, bias)

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    state = (
        weights["token_embedding.weight"][tokens[: end + 1]]
        + weights["positional_embedding"][: end + 1]
    )
    for layer in range(12):
        name = f"transformer.resblocks.{layer}"
        qkv = norm(state, f"{name}.ln_1") @ weights[f"{name}.attn.in_proj_weight"].T
        qkv += weights[f"{name}.attn.in_proj_bias"]
        heads = []
        for head in range(8):
            q, k, v = (
                qkv[:, 512 * part + 64 * head : 512 * part + 64 * (head + 1)] for part in range(3)
            )
            scores = (q @ k.T / 8).masked_fill(
                torch.ones(len(q), len(q)).triu(1).bool(), -torch.inf
            )
            heads.append(scores.softmax(dim=1) @ v)
        state = state + linear(torch.cat(heads, dim=1), f"{name}.attn.out_proj")
        hidden = torch.nn.functional.gelu(linear(norm(state, f"{name}.ln_2"), f"{name}.mlp.c_fc"))
        state = state + linear(hidden, f"{name}.mlp.c_proj")
    vector = (norm(state, "ln_final")[end] @ weights["text_projection"]).numpy()
    return np.asarray(vector / np.linalg.norm(vector))


def test_labels_are_encoded_as_clip_does_with_the_prompt_of_the_release(tmp_path):
    config = dict(open_clip.get_model_config("ViT-B-32"))
    config["vision_cfg"] = {
        "image_size": 32,
        "layers": 1,
        "width": 64,
        "patch_size": 32,
    }  # never run
    (tmp_path / f"{NAME}.json").write_text(json.dumps(config), encoding="utf-8")
    open_clip.add_model_config(tmp_path / f"{NAME}.json")
    torch.manual_seed(0)
    checkpoint = tmp_path / "weights.pt"
    torch.save(open_clip.create_model(NAME).half().state_dict(), checkpoint)
    labels = [Label(f"Q{n}", text, 1, 0, 0, ()) for n, text in enumerate(TEXTS)]
    found = encode.encode(labels, f"open_clip:{NAME}/{checkpoint}")
    assert (found.shape, found.dtype) == ((3, 512), np.float32)
    weights = {
        name: value.float() for name, value in torch.load(checkpoint, weights_only=True).items()
    }
    expected = [by_hand(f"A picture of a {text}", weights) for text in TEXTS]
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(found[0] - found[2]).max() > 1e-3
