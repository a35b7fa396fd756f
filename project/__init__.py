"""Whose data: reading a Potato project, labels, splits, the bundle, write-back."""
