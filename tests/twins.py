"""Models of other libraries that have the weights of a Transformer of ours."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from regard.recipe import ModelRecipe
from regard.text.tokenizer import BOS, EOS, PAD
from regard.transformer import Transformer

MARIAN = {"positions": "halves", "norm_epsilon": 1e-5, "output_bias": True}
"""What every MarianMTModel has."""


def torch_transformer(model: Transformer, recipe: ModelRecipe) -> nn.Transformer:
    """A torch.nn.Transformer, which has neither embeddings nor logits."""
    pre = recipe.norm == "pre"
    theirs = nn.Transformer(
        recipe.d_model, recipe.heads, recipe.layers, recipe.decoder_layers, recipe.d_ff,
        dropout=0.0, activation=recipe.activation, layer_norm_eps=recipe.norm_epsilon,
        batch_first=True, norm_first=pre,
    )  # fmt: skip
    if recipe.norm == "post":  # it has no final norm
        theirs.encoder.norm = theirs.decoder.norm = None

    def attention(to: nn.MultiheadAttention, ours: nn.Module) -> None:
        to.in_proj_weight.copy_(torch.cat([m.weight for m in (ours.W_q, ours.W_k, ours.W_v)]))
        to.in_proj_bias.copy_(torch.cat([m.bias for m in (ours.W_q, ours.W_k, ours.W_v)]))
        to.out_proj.load_state_dict(ours.W_o.state_dict())

    def sublayers(layer: nn.Module, *names: str) -> list[nn.LayerNorm]:
        if pre:
            return [getattr(layer, name).norm for name in names]
        return [getattr(layer, f"add_norm_{i}").norm for i in range(1, len(names) + 1)]

    with torch.no_grad():
        norms: list[tuple[nn.LayerNorm, nn.LayerNorm]] = []
        for to, ours in zip(theirs.encoder.layers, model.encoder, strict=True):
            attention(to.self_attn, ours.self_attention)
            names: tuple[str, ...] = ("self_attention", "feed_forward")
            norms += zip((to.norm1, to.norm2), sublayers(ours, *names), strict=True)
        for to, ours in zip(theirs.decoder.layers, model.decoder, strict=True):
            attention(to.self_attn, ours.self_attention)
            attention(to.multihead_attn, ours.cross_attention)
            names = ("self_attention", "cross_attention", "feed_forward")
            norms += zip((to.norm1, to.norm2, to.norm3), sublayers(ours, *names), strict=True)
        stacks = ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder))
        for to, ours in (pair for a, b in stacks for pair in zip(a.layers, b, strict=True)):
            to.linear1.load_state_dict(ours.feed_forward.W_1.state_dict())
            to.linear2.load_state_dict(ours.feed_forward.W_2.state_dict())
        if recipe.norm != "post":
            norms += [(theirs.encoder.norm, model.encoder_norm)]
            norms += [(theirs.decoder.norm, model.decoder_norm)]
        for to, ours in norms:
            to.load_state_dict(ours.state_dict())
    return theirs.train()  # the inference path of torch.nn is another kernel


def marian(model: Transformer, recipe: ModelRecipe) -> Any:
    """A MarianMTModel with the weights of `model`, whose positions are in halves."""
    from transformers import MarianConfig, MarianMTModel

    # "inputs" is left out: transformers ties both embeddings to the output, or none.
    share, tie = {"shared": (True, True), "target": (False, True), "apart": (False, False)}[
        recipe.embeddings
    ]
    config = MarianConfig(
        vocab_size=model.source_vocabulary,
        decoder_vocab_size=model.vocabulary,
        d_model=recipe.d_model,
        encoder_layers=recipe.layers,
        decoder_layers=recipe.decoder_layers,
        encoder_attention_heads=recipe.heads,
        decoder_attention_heads=recipe.decoder_heads,
        encoder_ffn_dim=recipe.d_ff,
        decoder_ffn_dim=recipe.decoder_d_ff,
        activation_function=recipe.activation,
        scale_embedding=recipe.embedding_scale,
        dropout=0.0,
        max_position_embeddings=512,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
        share_encoder_decoder_embeddings=share,
        tie_word_embeddings=tie,
        attn_implementation="eager",
    )
    theirs = MarianMTModel(config)
    encoder, decoder = theirs.model.encoder, theirs.model.decoder
    with torch.no_grad():
        for to, ours in _pairs(model, encoder, decoder):
            to.load_state_dict(ours.state_dict())
        encoder.embed_tokens.weight.copy_(model.embedding.tokens.weight)
        decoder.embed_tokens.weight.copy_(model.target_side.tokens.weight)
        theirs.lm_head.weight.copy_(model.output_matrix.weight)
        if model.output_bias is not None:
            theirs.final_logits_bias.copy_(model.output_bias)
    return theirs.eval()


def _pairs(model: Transformer, encoder: Any, decoder: Any) -> Iterator[tuple[Any, nn.Module]]:
    """Their layers, and ours that have the same weights."""
    attention = {"q_proj": "W_q", "k_proj": "W_k", "v_proj": "W_v", "out_proj": "W_o"}
    theirs, all_ours = (*encoder.layers, *decoder.layers), (*model.encoder, *model.decoder)
    for to, ours in zip(theirs, all_ours, strict=True):
        kinds = [(to.self_attn, ours.self_attention)]
        norms = [to.self_attn_layer_norm, to.final_layer_norm]
        if hasattr(to, "encoder_attn"):
            kinds.append((to.encoder_attn, ours.cross_attention))
            norms.insert(1, to.encoder_attn_layer_norm)
        for one, other in kinds:
            yield from ((getattr(one, a), getattr(other, b)) for a, b in attention.items())
        yield from ((norm, getattr(ours, f"add_norm_{i}").norm) for i, norm in enumerate(norms, 1))
        yield to.fc1, ours.feed_forward.W_1
        yield to.fc2, ours.feed_forward.W_2
