"""The GPU in a notebook: `%%gpu` and `%gpu`."""
