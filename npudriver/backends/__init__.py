"""Ways to a device, one a module; `npudriver.connect` has them by the names of their URLs."""
