"""Known failures of systems that do this job, and the threats to ours: a test for each."""
