"""What callers give, read and checked in one place: values, arrays, shapes as texts."""
