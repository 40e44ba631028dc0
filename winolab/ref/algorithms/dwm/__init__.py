"""DWM: convolutions of any filter and stride as sums of small unit-stride ones."""
