"""What every service stands on: settings, errors, deadlines, auth, database, jobs, gRPC."""
