"""What people are told: before, during and after a job."""
