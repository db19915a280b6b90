"""What is measured and compared with published figures."""
