"""What becomes of somebody's own table or folder of images."""
