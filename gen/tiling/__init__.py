"""How a layer is cut into tiles: spatial tiles, the search, what a tiling costs."""
