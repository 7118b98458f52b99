"""What a process stands on, as ports with a real and a simulated side. Floor 0."""
