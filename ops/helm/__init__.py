"""Checks of the Helm chart: what it renders for every Kubernetes version that it says it runs on."""
