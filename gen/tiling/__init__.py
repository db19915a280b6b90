"""How a layer is cut into tiles: windows of the output, the search, what a tiling costs."""
