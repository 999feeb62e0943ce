"""What every feature uses; the kernel knows no kind and no feature."""
