"""The commands of the command line, one file each, imported when they are called."""
