"""Hugging Face's MarianMT, from raw text to a translated test set, by its own Seq2SeqTrainer.

Hugging Face documents how to continue the training of a model, not how to begin one from little
text. So shape, dropout and rate are usual ones for IWSLT, a text of 160,000 pairs: 6 layers,
d_model 256, 4 heads, dropout 0.3, and a rate that rises to 0.0005 and then falls in a line to zero,
as it does by default in the Trainer. With --small, they are those of `time-30m-02` in
experiments/budget.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from text import SMALL_HELP, SOURCE, TRAIN, arguments, learn_sub_words, lines

PAD, EOS = 1, 2  # SentencePiece's <unk>, <s> and </s> are 0, 1, 2, and nothing here needs <s>
LONGEST = 100  # sub-words of a sentence that is learned from
SENTENCES = 256  # of a batch: some 4,000 target tokens
WARMUP_SHARE = 0.06  # of the time


def main() -> None:
    options = arguments(__doc__, small=SMALL_HELP)
    sub_words = sentencepiece.SentencePieceProcessor(model_file=str(learn_sub_words(options)))
    torch.manual_seed(42)
    model = MarianMTModel(settings(sub_words.vocab_size(), options.small))
    train(model, examples(options, sub_words), options.out, 60 * options.minutes, options.small)
    model.save_pretrained(options.out / "model")
    sources = lines(options.data, options.test, SOURCE)
    written = translate(model, sub_words, sources)
    (options.out / "out.test").write_text("\n".join(written) + "\n", encoding="utf-8")


def settings(symbols: int, small: bool) -> MarianConfig:
    layers, width, inner, dropout = (4, 128, 256, 0.2) if small else (6, 256, 1024, 0.3)
    return MarianConfig(
        vocab_size=symbols,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        activation_function="relu",
        dropout=dropout,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        init_std=width**-0.5 if small else 0.02,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        bos_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
    )


def examples(
    options: argparse.Namespace, sub_words: sentencepiece.SentencePieceProcessor
) -> list[dict[str, list[int]]]:
    sources, targets = (
        sub_words.encode(lines(options.data, TRAIN, language), add_eos=True)
        for language in (SOURCE, options.target)
    )
    return [
        {"input_ids": source, "labels": target}
        for source, target in zip(sources, targets, strict=True)
        if max(len(source), len(target)) <= LONGEST
    ]


def rows(sentences: list[list[int]], padding: int = PAD) -> torch.Tensor:
    return pad_sequence(list(map(torch.tensor, sentences)), batch_first=True, padding_value=padding)


def batch(chosen: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    ids = rows([example["input_ids"] for example in chosen])
    labels = rows([example["labels"] for example in chosen], -100)
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "decoder_input_ids": F.pad(labels[:, :-1], (1, 0), value=PAD).masked_fill_(labels < 0, PAD),
        "labels": labels,
    }


class UntilTheTimeIsOver(TrainerCallback):
    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_training_stop = time.monotonic() >= self.end


def train(
    model: MarianMTModel,
    pairs: list[dict[str, list[int]]],
    out: Path,
    seconds: float,
    small: bool,
) -> None:
    peak = 2 * (128 * 1000) ** -0.5 if small else 5e-4
    optimizer = torch.optim.AdamW(
        model.parameters(), peak, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0
    )
    factor = equation_3 if small else partial(falling, time.monotonic(), seconds)
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(out / "trainer"),
            max_steps=1_000_000,  # the time ends it
            per_device_train_batch_size=SENTENCES,
            train_sampling_strategy="group_by_length",
            label_smoothing_factor=0.1,
            max_grad_norm=1.0,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            seed=42,
        ),
        train_dataset=pairs,
        data_collator=batch,
        optimizers=(optimizer, LambdaLR(optimizer, factor)),
        callbacks=[UntilTheTimeIsOver(seconds)],
    )
    trainer.train()


def equation_3(steps: int, warmup: int = 1000) -> float:
    """Equation (3) of the paper, as a share of its peak."""
    step = steps + 1
    return min(step / warmup, (warmup / step) ** 0.5)


def falling(began: float, seconds: float, _steps: int) -> float:
    """A line up to the peak, and a line down to zero when the time is over."""
    share = (time.monotonic() - began) / seconds
    return min(share / WARMUP_SHARE, max(1 - share, 0) / (1 - WARMUP_SHARE))


def translate(
    model: MarianMTModel, sub_words: sentencepiece.SentencePieceProcessor, sources: list[str]
) -> list[str]:
    model.eval()
    written = []
    for start in range(0, len(sources), 50):
        ids = rows(sub_words.encode(sources[start : start + 50], add_eos=True))
        best = model.generate(
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=5,
            length_penalty=1.0,
            max_length=LONGEST,
        )
        written += sub_words.decode(best.tolist())
    return written


if __name__ == "__main__":
    main()
