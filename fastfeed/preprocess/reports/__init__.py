"""Reports about a job: estimate, progress, status, statistics, verification, preview."""
