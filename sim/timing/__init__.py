"""Parts of the time model (`sim.cycles`): one file for each engine and what lies between them."""
