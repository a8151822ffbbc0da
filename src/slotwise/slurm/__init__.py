"""The commands of Slurm, such as `sbatch` and `squeue`, for a server of slotwise."""
