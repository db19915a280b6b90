"""Board descriptions and vendor project templates."""
