"""Three doors for speed: attention, add-and-norm, smoothed cross-entropy.

Each module gives one function that computes what an equation of the paper says, by whatever means
suits the device. Nothing else in the model asks what it runs on. The obvious version stands in
`regard.attention`, `regard.layers` and `regard.loss`; the tests hold the two equal, values and
gradients.
"""
