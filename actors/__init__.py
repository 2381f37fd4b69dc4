if __name__ != "gifair_ray.actors":
    raise ImportError(f"import this package as gifair_ray.actors, not as {__name__}")
