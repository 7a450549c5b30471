"""Drop-in for the library of the same import name: ``from kubernetesdlprofile import kubeprofiler``."""
