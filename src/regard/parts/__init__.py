"""Experiments of many parts: several processes share the parts, and the numbers give verdicts.

    verdicts   verdicts from the figures of several seeds
    kept       parts that are done once, and their numbers on the disk
    settings   the settings of a training, as text
    markdown   tables of figures and verdicts

The folders `claims` and `reproduce` use these modules.
"""
