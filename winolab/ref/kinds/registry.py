"""The kinds of algorithms: a line each, with the module that offers what winolab.ref.kinds.contract
says."""

from __future__ import annotations

from winolab.ref.kinds import direct, dwm, fft, gamma, omega, winograd, winrs
from winolab.ref.kinds.contract import Kind

ENGINES: dict[str, Kind] = {
    "direct": direct,
    "dwm": dwm,
    "winograd": winograd,
    "fft": fft,
    "gamma": gamma,
    "omega": omega,
    "winrs": winrs,
}
