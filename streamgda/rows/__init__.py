"""Rows: where they come from, how they are cut, and which of them are valid."""
