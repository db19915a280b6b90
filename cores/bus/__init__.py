"""AXI: signatures, bursts, the engines that read and write memory."""
