"""The chart and the images on a real Kubernetes: see README.md."""
