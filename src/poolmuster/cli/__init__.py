"""What an operator types: flags, their environment variables, exit codes, and output for people and for pipes."""
