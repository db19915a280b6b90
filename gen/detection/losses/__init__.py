"""What heads are trained by, in PyTorch, which only these modules and `gen.train` need (the extra ``train``)."""
