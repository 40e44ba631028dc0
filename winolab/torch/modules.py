"""torch.nn's convolutions, computed by winolab: the same arguments, parameters and state dict."""

from __future__ import annotations

from functools import partial
from inspect import signature
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.nn.functional import pad

from winolab.options import ConvOptions
from winolab.problem import Direction
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.torch import functional, operators
from winolab.torch.asked import NUMBERS, check_invariant, kept_geometry, plain_sizes
from winolab.torch.kept import KeptFilters
from winolab.torch.plain import NATIVE

FORWARD = NUMBERS["forward"]
OWN = ("algorithm", "precision", "_limit", "_invariant")
READ = itemgetter("stride", "padding", "dilation", "groups", "padding_mode", *OWN)


def check_options(
    algorithm: Any, precision: Any, tolerance: Any, batch_invariant: Any = False
) -> ConvOptions:
    """The options, read. Raises as winolab.torch's functions for what names nothing."""
    _, named, *_ = functional.options(None, precision, None, batch_invariant) or (None, None)
    if named is not None:
        arithmetic(named)
    return ConvOptions("channels_first", algorithm, precision, tolerance=tolerance).checked()


class Convolution(nn.Module):
    """What all six modules have beside torch.nn's: how they compute, and filters that are kept.

    In evaluation, on a GPU and without gradients, a filter whose kernel transforms it is
    transformed once for each shape of inputs and kept until the weight changes. ``kept``, a
    KeptFilters, says in how many bytes (``nbytes``) and gives them back (``forget``), as do train()
    and writing to the weight.
    """

    algorithm: Any = None
    precision: Any = None
    kept: KeptFilters
    _tolerance: Any = None
    _invariant: bool = False
    _limit: str | None = None  # as text: torch.compile takes a module's numbers for variables

    def __init__(
        self,
        *arguments: Any,
        algorithm: Any = None,
        precision: Any = None,
        tolerance: Any = None,
        batch_invariant: bool = False,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.computes(algorithm, precision, tolerance, batch_invariant)

    @property
    def tolerance(self) -> Any:
        return self._tolerance

    @tolerance.setter
    def tolerance(self, value: Any) -> None:
        self._tolerance, self._limit = value, None if value is None else str(value)

    @property
    def batch_invariant(self) -> bool:
        return self._invariant

    @batch_invariant.setter
    def batch_invariant(self, value: bool) -> None:
        check_invariant(value)
        self._invariant = value

    def computes(
        self, algorithm: Any, precision: Any, tolerance: Any, batch_invariant: bool
    ) -> None:
        """Set how. Raises as winolab.torch's functions for what names nothing."""
        check_options(algorithm, precision, tolerance, batch_invariant)
        self.algorithm, self.precision, self.tolerance = algorithm, precision, tolerance
        self.batch_invariant = batch_invariant
        self.kept = KeptFilters()

    def train(self, mode: bool = True) -> Any:
        if mode:
            self.kept.forget()
        return super().train(mode)

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        self.kept.forget()  # as PyTorch moves and casts modules
        return super()._apply(*arguments, **named)

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        self.kept.forget()  # PyTorch may swap tensors, which nothing must refer to weakly
        super()._load_from_state_dict(*arguments, **named)

    def __prepare_scriptable__(self) -> Any:
        """torch.jit.script asks every module for what stands for it."""
        raise ValueError("torch.jit.script does not know this operator; use torch.export.export")

    def extra_repr(self) -> str:
        named = ("algorithm", "precision", "tolerance", "batch_invariant")
        said = [f"{name}={getattr(self, name)!r}" for name in named if getattr(self, name)]
        return ", ".join([super().extra_repr(), *said])

    def how(self) -> tuple[Any, ...]:
        """Options as operators take them."""
        return functional.options(self.algorithm, self.precision, self._limit, self._invariant)

    def through(self, direction: Direction, input: Any, asked: bool = False) -> Any:
        """What computes: the kept filter, or None, the operator. ``asked``: the native module does
        not know it."""
        if self.training or torch.compiler.is_compiling() or not isinstance(input, Tensor):
            return None  # torch.fx writes it down
        return partial(self.kept.convolve, direction, asked=asked)


class _Forward(Convolution):
    def forward(self, input: Any) -> Any:
        me: Any = self
        parameters = me._parameters
        # A weight that is computed of others, or a bias, is no parameter.
        weight = parameters.get("weight") if "bias" in parameters else None
        native = None if is_dynamo_compiling() else NATIVE.call
        if native and weight is not None and (arguments := self._arguments()):
            filters = None if me.training else self.kept.native or False
            y = native(FORWARD, arguments, input, weight, filters)
            if y is not None:
                bias = parameters["bias"]
                if bias is None:
                    return y
                functional.check_bias(bias, weight.shape[0])
                return functional.with_bias(y, bias, torch.Tensor.add_)  # y is nobody else's
            return self._convolved(input, weight, parameters["bias"], True)
        return self._conv_forward(input, me.weight, me.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._convolved(input, weight, bias, False)

    def _convolved(self, input: Tensor, weight: Tensor, bias: Tensor | None, asked: bool) -> Tensor:
        """The result; ``asked``: the native module was asked for it in vain."""
        if not is_dynamo_compiling() and type(input) is Tensor and not input.is_complex():
            arguments = self._arguments()
            if arguments and input.dim() == weight.dim() == len(arguments[0]) + 2:
                if bias is not None:
                    functional.check_bias(bias, weight.shape[0])
                calls = operators.UNKNOWN if asked else operators.CALLS
                convolve = self.through("forward", input, asked) or calls["forward"]
                y = convolve(input, weight, *arguments)
                return y if bias is None else functional.with_bias(y, bias)
        me: Any = self
        padding = me.padding
        if me.padding_mode != "zeros":
            input = pad(input, me._reversed_padding_repeated_twice, mode=me.padding_mode)
            padding = 0
        geometry = me.stride, padding, me.dilation, me.groups
        taps = len(me.kernel_size)
        how, through = self.how(), self.through("forward", input)
        return functional.correlate(taps, input, weight, bias, *geometry, how, through)

    def _arguments(self) -> tuple[Any, ...] | None:
        """What the operator takes behind its operands, read again where an attribute is another;
        None for what is not usual."""
        own = self.__dict__
        try:
            values, known = READ(own), own.get("_read")
        except KeyError:
            return None
        if known is None or known[0] != values:
            known = own["_read"] = values, self._usual(*values)
        return known[1]

    def _usual(
        self, stride: Any, padding: Any, dilation: Any, groups: Any, mode: str, *own: Any
    ) -> tuple[Any, ...] | None:
        """The same of sizes in tuples, of zeros around the input and of names, which say the same
        where they are equal."""
        algorithm, precision, limit, invariant = own
        me: Any = self
        taps = len(me.kernel_size)
        tuples = type(stride) is type(padding) is type(dilation) is tuple
        named = {type(algorithm), type(precision)} <= {str, type(None)}
        if mode != "zeros" or not tuples or not named:
            return None
        if not plain_sizes(taps, stride, padding, dilation):
            return None
        geometry = kept_geometry(taps, stride, padding, dilation)
        return *geometry, groups, *functional.options(algorithm, precision, limit, invariant)


class _Transposed(Convolution):
    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        me: Any = self
        if me.padding_mode != "zeros":
            raise ValueError(f"padding_mode is {me.padding_mode!r}; expected 'zeros'")
        taps = len(me.kernel_size)
        longer = me._output_padding(
            input, output_size, me.stride, me.padding, me.kernel_size, taps, me.dilation
        )
        sizes = me.stride, me.padding, longer, me.dilation
        how, through = self.how(), self.through("backward_data", input)
        return functional.transpose(
            taps, input, me.weight, me.bias, *sizes, me.groups, how, through
        )


class Conv1d(_Forward, nn.Conv1d):
    pass


class Conv2d(_Forward, nn.Conv2d):
    pass


class Conv3d(_Forward, nn.Conv3d):
    pass


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    pass


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    pass


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    pass


# torch.nn's class -> ours
OURS: dict[type[nn.Module], type[Convolution]] = {
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}
ABOUT = """torch.nn.{name} by winolab: its arguments, parameters and state dict, and how to compute.

    ``algorithm``, ``precision``, ``tolerance`` and ``batch_invariant``, keywords, are those of
    winolab.torch.{function}. In evaluation filters are kept as ``kept`` says (Convolution).

    >>> layer = {name}(4, 6, 3, tolerance=1e-5)
    >>> layer(torch.ones({x})).shape
    torch.Size({y})
    """


def _initializer(theirs: type[nn.Module]) -> Any:
    """Convolution's, which shows ``theirs``' arguments and its own to whoever asks for them, as
    torch.nn.utils.skip_init does."""

    def __init__(self: Convolution, *arguments: Any, **named: Any) -> None:
        Convolution.__init__(self, *arguments, **named)

    own = signature(Convolution.__init__).parameters.values()
    found = signature(theirs.__init__)
    shown = (*found.parameters.values(), *(p for p in own if p.kind is p.KEYWORD_ONLY))
    init: Any = __init__
    init.__signature__ = found.replace(parameters=shown)
    return init


for _theirs, _ours in OURS.items():
    _ours.__init__ = _initializer(_theirs)
    _ndim = int(_ours.__name__[-2])
    _transposed = _ours.__name__.startswith("ConvT")
    _ours.__doc__ = ABOUT.format(
        name=_ours.__name__,
        function=_ours.__name__.lower().replace("convtranspose", "conv_transpose"),
        x=(2, 4, *(8,) * _ndim),
        y=[2, 6, *(10 if _transposed else 6,) * _ndim],
    )
