"""Sentences for certificates: ordinary ones, and ones that converters often get wrong."""

SENTENCES = (
    "The dog sleeps because it is tired.",
    "Two men in green shirts are standing in a yard.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "Le conseil a adopté la résolution à l'unanimité, malgré quelques réserves.",
    "나는 어제 도서관에서 책을 두 권 빌렸다.",
    "今日は天気がいいですね。",
    "",
    "yes",
    "A",
    ".",
    "-- \"Well,\" she said; 'it's (almost) 5 o'clock'...",
    "In 2017, 3,003 sentences cost 12.5 % of $1,000,000.00 - or 1/8.",
    "8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8",
    "very very very very very very very very very very very very very very good",
    "https://example.org/a_b?c=d&e=%20f#g write to first.last+tag@example.org",
    "</s> <s> <pad> <unk> >>deu<< @-@ @@ ▁ ##",
    "tabs\tand  double  spaces   inside ",
    "ALL CAPITALS AND miXeD cAsE",
    "a\u0301 e\u0301 n\u0303 u\u0308 \u00e1 \u00e9 \u00f1 \u00fc",
    "\ufb01nd \u00bd \u2460 \uff21\uff22\uff23 \u2126",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1e9\U0001f1ea",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U00012000\U00010348\u16a0\u13a0 \ue000 \U000e0041",
    "soft\u00adhyphen zero\u200bwidth no\u00a0break \ufeff mark",
    "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenfabrikant" * 3,
    "It was the best of times, it was the worst of times, it was the age of wisdom, "
    "it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity, "
    "it was the season of light, it was the season of darkness, it was the spring of hope.",
)
"""Sentences in many scripts. Most tokenizers without byte pieces lack some of their characters."""
