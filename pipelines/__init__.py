"""When and whether things run: definitions, partitions, jobs, schedules, sensors, checks, command line."""
