"""The command line `nianlun`: one file a group of commands."""
