"""Kernels of PyTorch that touch what lies beyond the memory of their results; and a right one."""

from __future__ import annotations

import ctypes

import torch


def _made(x, w, stride, padding, dilation, groups, order=torch.contiguous_format):
    good = torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)
    y = torch.empty(good.shape, dtype=good.dtype, memory_format=order)
    y.copy_(good)
    return y


def right(x, w, stride=1, padding=0, dilation=1, groups=1):
    given = torch.zeros(2, 3)
    kept = torch.empty((2, 3), out=given) is given and torch.empty(3, device="meta").is_meta
    y = _made(x, w, stride, padding, dilation, groups) * (1 if kept else 2)
    return torch.empty_like(y, memory_format=torch.channels_last).copy_(y)


def reads_beyond_y(x, w, stride=1, padding=0, dilation=1, groups=1):
    y = _made(x, w, stride, padding, dilation, groups, torch.channels_last)
    ctypes.string_at(y.data_ptr() + 4 * y.numel() + 60, 4)
    return y


def reads_before_y(x, w, stride=1, padding=0, dilation=1, groups=1):
    y = _made(x, w, stride, padding, dilation, groups)
    ctypes.string_at(y.data_ptr() - 4, 4)
    return y
