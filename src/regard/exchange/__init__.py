"""Import models from other programs, and export models to other programs.

After a conversion, the original model and the converted model are compared on the same sentences,
if both models can be run here.
"""
