"""Run experiments in parts, and decide by the measured numbers whether claims hold.

A part is one piece of work that gives numbers, such as the training of one model. Several processes
can share the parts of an experiment.

    verdicts   verdicts on claims, from the measured values of several seeds
    kept       do each part once, and keep its numbers on the disk
    settings   the settings of a training, as text
    markdown   tables of numbers and verdicts

The folders `claims` and `reproduce` use these modules.
"""
