"""Problems computed as others: in phases, in pieces, image by image, with dimensions exchanged."""
