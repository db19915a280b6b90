"""Compiled programs: the `.npu` file and its text form."""
