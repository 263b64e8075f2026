"""What the product knows of mixed precision: units, the GradScaler machine, the API table, lowering, analysis."""
