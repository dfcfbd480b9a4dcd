"""Nianlun's services: four gRPC servers, their workers and what they share."""
