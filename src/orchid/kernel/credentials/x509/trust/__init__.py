"""Trust: anchors and sets of them, verification of paths, identity of a verified chain."""
