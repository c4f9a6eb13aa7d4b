"""Settings of the programs: parsed once, frozen, passed whole."""
