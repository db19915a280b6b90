"""The compiler's graph: what it consists of, its rules, what it computes."""
