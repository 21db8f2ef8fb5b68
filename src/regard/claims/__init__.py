"""The claims of the paper's text, each as a small experiment: `regard claims`.

A claim needs *parts*: calculations, and trainings of small models on the built-in corpus. Each part
is computed once for each seed and gives named numbers, which are kept on the disk (`regard.parts`).
The function that judges a claim reads only these numbers. A module of this folder uses only modules
that come before it here:

    parts -> recipes -> calculations, trainings -> exact, scores, ablations -> registry
    tables -> trying
"""
