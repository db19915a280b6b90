"""How a layer is computed: one module for each datapath."""
