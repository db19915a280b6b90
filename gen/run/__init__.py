"""Running a model: its samples, the targets, what came out."""
