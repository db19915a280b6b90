"""The generated hardware outside the simulators: exported projects, synthesis."""
