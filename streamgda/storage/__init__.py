"""The format of saved objects, files that are written aside, and opening zarr stores."""
