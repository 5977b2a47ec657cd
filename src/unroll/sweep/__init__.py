"""Many runs: the plan, the launchers, the folder, the table."""
