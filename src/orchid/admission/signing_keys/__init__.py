"""SigningKeys: creation, import and the steps of a rotation."""
