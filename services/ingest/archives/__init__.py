"""Archives as sources: read as data, and written below one folder and nowhere else."""
