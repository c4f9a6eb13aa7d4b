"""Who asks: credentials proved, and judged by the file that says what each may do."""
