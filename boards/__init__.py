"""Board descriptions: data alone; what a board shares with others of its family of devices, `gen.families` has."""
