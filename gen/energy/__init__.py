"""Energy, relative: units by cells and toggles, levels of voltage and frequency, a battery (docs/energy.md)."""
