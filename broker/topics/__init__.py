"""Topics of the cluster: found in the image, and made."""
