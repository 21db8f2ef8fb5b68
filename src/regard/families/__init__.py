"""The models that the paper compares the Transformer with: recurrent and convolutional ones."""
