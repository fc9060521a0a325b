"""Whole notebooks as jobs: `tandem notebook run` and `submit`, and the commands for jobs.

document    reads a notebook, saves it atomically
parameters  `-p name=value`, and the cell that sets them
resume      the cells that a resumed notebook runs again
kernel      starts the kernel under `tandem run`, and interrupts it
display     progress and outputs on the terminal or in a log
settings    the choices of one run; their checks before anything runs
runner      runs the cells
records     one folder for each job; the lock that says whether it lives
slurm       jobs of Slurm: their scripts, what Slurm says of them, their end
worker      the background process of a job
listing     `tandem jobs` and `tandem logs`
control     `tandem notebook submit`, `tandem cancel` and `tandem wait`
commands    the command line
"""
