"""Experiments of many parts: each is done once, by any of several processes, and then judged.

    verdicts   verdicts from figures over seeds
    locks      locks that end with their process
    kept       parts that are done once, and their numbers on the disk

`claims` and `reproduce` are made of it.
"""
