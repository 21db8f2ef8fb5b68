"""CTranslate2 decodes what `regard export ctranslate2` wrote."""

import json
from typing import Any

import ctranslate2
from decoding_task import LONGEST, arguments, in_turn, read_sentences
from worker import Turn, serve

COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


def start() -> tuple[dict[str, Any], Turn]:
    parser = arguments()
    parser.add_argument("--batch", type=int, default=64, help="sentences in a batch")
    parser.add_argument("--by-thread", action="store_true", help="one thread for each batch")
    args = parser.parse_args()
    batches, threads = (args.threads, 1) if args.by_thread else (1, args.threads)
    translator = ctranslate2.Translator(
        str(args.exported),
        compute_type=COMPUTE_TYPES[args.precision],
        inter_threads=batches,
        intra_threads=threads,
    )
    names = json.loads((args.exported / "shared_vocabulary.json").read_text("utf-8"))
    ids = {name: i for i, name in enumerate(names)}
    lengths = {"max_decoding_length": args.length or LONGEST}
    if args.length:
        lengths["min_decoding_length"] = args.length

    def translate(sources: list[list[str]]) -> list[list[int]]:
        results = translator.translate_batch(
            sources,
            max_batch_size=args.batch,  # it sorts them by length
            beam_size=args.beam,
            length_penalty=args.alpha,
            **lengths,
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    about = {
        "name": "CTranslate2",
        "version": {"ctranslate2": ctranslate2.__version__},
        "precision": translator.compute_type,
        "threads": f"{batches} x {threads}",
    }
    sources = [[names[i] for i in pieces[:-1]] for pieces in read_sentences(args, "pieces")]
    return about, in_turn(args, sources, translate)


if __name__ == "__main__":
    serve(start)
