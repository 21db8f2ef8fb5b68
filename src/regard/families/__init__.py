"""Recurrent and convolutional models, of the kinds that the paper compares the Transformer with."""
