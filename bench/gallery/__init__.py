"""The figures and tables of the documents that this package implements, beside ours."""
