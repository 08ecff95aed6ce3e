"""What two or more stages share. Layers import only downwards; see the README, "How to extend"."""
