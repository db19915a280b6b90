"""Models of which only parts run on the accelerator: which, and the models of the parts."""
