"""What the site copies from outside this folder: adding one touches its own folder alone."""

from __future__ import annotations

from pathlib import Path

GENERATED = Path(__file__).resolve().parent / "_generated"


def copies(root: Path) -> dict[Path, Path]:
    """The site's copies of a checkout's executed notebooks and pages of kernel families, and what
    they are copies of."""
    found = {f"papers/{p.parent.name}.ipynb": p for p in root.glob("papers/*/*.ipynb")}
    families = root / "winolab" / "gpu" / "families"
    found |= {f"families/{p.parent.name}.md": p for p in families.glob("*/README.md")}
    return {GENERATED / name: path for name, path in found.items()}
