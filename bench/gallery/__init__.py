"""Gallery: figures and tables of the documents that this package implements, with ours."""
