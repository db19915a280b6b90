"""Where constants and feature maps lie."""
