"""Experiments of many parts: any of several processes does a part once; then follow verdicts.

    verdicts   verdicts from figures over seeds
    locks      locks that end with their process
    kept       parts that are done once, and their numbers on the disk

The folders `claims` and `reproduce` use these modules.
"""
