"""What kernels need of a machine, and what is raised where it lacks that."""

from __future__ import annotations


class MachineError(RuntimeError):
    """The machine lacks something, or forbids it; the text says what to install or change."""
