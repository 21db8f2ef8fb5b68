"""Hugging Face's MarianMTModel, randomly initialised, in its usual training step.

The loss is torch's smoothed cross-entropy of its logits; the LabelSmoother of transformers computes
the same with more passes.
"""

import torch
import transformers
from torch import Tensor, nn
from training_batches import BETAS, EPSILON, RATE, Batch, Shape, Step, smoothed_loss, train_in_turn
from transformers import MarianConfig, MarianMTModel


def prepare(shape: Shape) -> tuple[nn.Module, Step]:
    config = MarianConfig(
        vocab_size=shape.vocabulary,
        d_model=shape.d_model,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        activation_function="relu",
        dropout=shape.dropout,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        init_std=shape.d_model**-0.5,
        pad_token_id=0,
        decoder_start_token_id=1,
        eos_token_id=2,
        forced_eos_token_id=2,
        use_cache=False,
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), RATE, BETAS, EPSILON)

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        logits = model(
            input_ids=batch.source,
            attention_mask=(batch.source != 0).long(),
            decoder_input_ids=batch.target,
        ).logits
        loss = smoothed_loss(logits, batch, shape)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


if __name__ == "__main__":
    train_in_turn(str(torch.float32), {"transformers": transformers.__version__}, prepare)
