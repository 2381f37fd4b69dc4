"""gifair-ray: fair federated learning under real-world systems conditions."""
