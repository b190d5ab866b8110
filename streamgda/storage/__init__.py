"""The format of saved objects, opening zarr stores, and replacing files in one step."""
