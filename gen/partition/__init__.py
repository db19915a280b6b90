"""Models of which only a part runs on the accelerator: which, and the models of the segments."""
