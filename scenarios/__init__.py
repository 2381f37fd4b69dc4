if __name__ != "gifair_ray.scenarios":
    raise ImportError(f"import this package as gifair_ray.scenarios, not as {__name__}")
