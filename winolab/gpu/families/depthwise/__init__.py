"""Depthwise convolution: as many groups as channels, any filter, stride and dilation."""
