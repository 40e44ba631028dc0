"""Parameter structs as the CUDA sources declare them."""

from __future__ import annotations

from winolab.gpu.params import FLOAT, INT, LONG, MAP, POINTER

ARRAY = "s"


def c_fields(struct: str, source: str) -> tuple[tuple[str, str], ...]:
    """Names and kinds of the fields of a C struct, in order, as a Layout has them; or ARRAY."""
    body = source.split(f"struct {struct} {{")[1].split("};")[0]
    lines = [line.split("//")[0].strip() for line in body.splitlines()]
    fields: list[tuple[str, str]] = []
    for statement in " ".join(lines).split(";"):
        words = statement.replace("*", " * ").split()
        kind = POINTER if "*" in words else LONG if "long" in words else INT
        kind = MAP if "TensorMap" in words else kind
        kind = FLOAT if kind == INT and "float" in words else kind
        types = ("const", "float", "int", "long", "unsigned", "void", "*", "TensorMap")
        names = " ".join(word for word in words if word not in types)
        if "[" in names:  # its type and size are not looked at
            name, _ = names.split()[-1].split("[")
            fields.append((name, ARRAY))
            continue
        fields += [(name.strip(), kind) for name in names.split(",") if name.strip()]
    return tuple(fields)
