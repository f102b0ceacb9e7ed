"""Products: what one output tile holds, and how its pixels come about. Nothing here imports dagster; workers import it."""
